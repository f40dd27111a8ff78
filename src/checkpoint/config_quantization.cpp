#include "checkpoint/config_parts.h"
#include "checkpoint/weights.h"

namespace lockstep::checkpoint {
namespace {

Status check_mode(const Fields& block) {
  LOCKSTEP_ASSIGN(const std::optional<std::string> mode, block.string("mode"));
  if (mode && *mode != "affine") return block.unsupported("mode", "is \"" + printable(*mode, 80) + "\"; only affine quantisation can be served");
  return {};
}

Status read_bits_and_group(const Fields& block, int& bits, int& group_size) {
  LOCKSTEP_TRY(check_mode(block));
  LOCKSTEP_ASSIGN(const std::int64_t b, block.required_integer("bits", 1, 64));
  LOCKSTEP_ASSIGN(const std::int64_t g, block.required_integer("group_size", 1, 1 << 20));
  if (b != 2 && b != 3 && b != 4 && b != 5 && b != 6 && b != 8)
    return block.unsupported("bits", "is " + std::to_string(b) + "; 2, 3, 4, 5, 6 and 8 can be served");
  if (g != 32 && g != 64 && g != 128) return block.unsupported("group_size", "is " + std::to_string(g) + "; 32, 64 and 128 can be served");
  bits = int(b), group_size = int(g);
  return {};
}

Status read_overrides(const Fields& block, Quantization& out) {
  for (const auto& entry : block.json()) {
    const std::string key(entry.key().data(), entry.key().size());
    if (key == "bits" || key == "group_size" || key == "mode") continue;
    Quantization::Override o{false, out.bits, out.group_size};  // true: the globals
    if (entry.value().is_bool()) {
      o.plain = !entry.value().get_bool();
    } else if (entry.value().is_object()) {
      LOCKSTEP_ASSIGN(const std::optional<Fields> inner, block.object(key));
      LOCKSTEP_TRY(read_bits_and_group(*inner, o.bits, o.group_size));
    } else {
      return block.unsupported(key, "is " + shown(entry.value()) + ", which is no setting of affine quantisation");
    }
    const auto [at, fresh] = out.overrides.emplace(normalised_name(key), o);
    if (!fresh && (at->second.plain != o.plain || at->second.bits != o.bits || at->second.group_size != o.group_size))
      return block.wrong(key, "contradicts another entry for the module " + printable(at->first));
  }
  return {};
}

}  // namespace

Status read_quantization(const Fields& root, const Fields& text, Config& config) {
  std::optional<Fields> block;
  for (const Fields* fields : {&root, &text}) {
    for (const char* key : {"quantization", "quantization_config"}) {
      if (block) continue;
      LOCKSTEP_ASSIGN(block, fields->object(key));
    }
  }
  if (!block) return {};
  if (const auto* method = block->find("quant_method"))
    return block->unsupported("quant_method", "is " + shown(*method) + "; only MLX affine quantisation can be served");
  config.quantization.present = true;
  LOCKSTEP_TRY(read_bits_and_group(*block, config.quantization.bits, config.quantization.group_size));
  return read_overrides(*block, config.quantization);
}

}  // namespace lockstep::checkpoint
