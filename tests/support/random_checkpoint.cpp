#include "support/random_checkpoint.h"

#include <fnmatch.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstring>
#include <fstream>

#include "checkpoint/config.h"
#include "support/random_tensor.h"

namespace lockstep::testing {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;
using Fill = RandomTensor::Fill;

Error invalid(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message), {}}; }

/// Lists the tensors of a checkpoint and the quantisation entries that its config needs.
class Layout {
 public:
  explicit Layout(const RandomCheckpoint& spec) : spec_(spec) {
    hybrid_ = spec.family == "qwen3_5";
    body_ = !hybrid_ ? "model." : spec.converted ? "language_model.model." : "model.language_model.";
    head_ = hybrid_ && spec.converted ? "language_model.lm_head" : "lm_head";
    plain_ = spec.format == Format::kF32 ? DType::kF32 : spec.format == Format::kF16 ? DType::kF16 : DType::kBF16;
  }

  Status build() {
    const double embedding_deviation = 3 / std::sqrt(double(spec_.hidden_size));  // logits of a normed row: deviation 3
    LOCKSTEP_TRY(linear("embed_tokens", spec_.vocab_size, spec_.hidden_size, false, embedding_deviation));
    for (std::int64_t i = 0; i < spec_.num_hidden_layers; i++) LOCKSTEP_TRY(layer(i));
    norm("norm", spec_.hidden_size);
    if (!spec_.tied) LOCKSTEP_TRY(linear("lm_head", spec_.vocab_size, spec_.hidden_size, false, embedding_deviation));
    return {};
  }

  bool is_full(std::int64_t i) const {
    if (!hybrid_) return true;
    return spec_.layer_kinds.empty() ? (i + 1) % spec_.full_attention_interval == 0 : spec_.layer_kinds[i] == 'f';
  }
  std::vector<RandomTensor> tensors;
  json::object overrides;

 private:
  std::string written(const std::string& module) const { return module == "lm_head" ? head_ : body_ + module; }

  void vector(const std::string& name, std::int64_t n, Fill fill, DType dtype, double mean, double deviation) {
    tensors.push_back({written(name), name, dtype, {n}, fill, mean, deviation});
  }
  /// Qwen3.5: raw files hold w of 1 + w, converted ones the sum. Others: around 1.
  void norm(const std::string& module, std::int64_t n) {
    vector(module + ".weight", n, Fill::kNormal, plain_, hybrid_ ? 0 : 1, 0.1);
    if (hybrid_ && spec_.converted) tensors.back().added = 1;
  }

  Status linear(const std::string& module, std::int64_t out, std::int64_t in, bool bias, double deviation = 0) {
    if (deviation == 0) deviation = 1 / std::sqrt(double(in));
    bool plain = spec_.format != Format::kMlx || in % spec_.group_size != 0;  // MLX leaves such modules as they are
    int bits = spec_.bits, group = spec_.group_size;
    for (const auto& entry : spec_.overrides) {
      if (fnmatch(entry.pattern.c_str(), module.c_str(), 0) != 0) continue;
      plain = entry.plain;
      if (plain) continue;
      bits = entry.bits, group = entry.group_size;
      if (in % group != 0) return invalid(module + " has " + std::to_string(in) + " inputs, no multiple of its group of " + std::to_string(group));
    }
    const std::string name = written(module);
    if (spec_.format == Format::kMlx) {
      if (plain && in % spec_.group_size == 0) overrides[name] = false;
      if (!plain && (bits != spec_.bits || group != spec_.group_size)) overrides[name] = json::object{{"group_size", group}, {"bits", bits}};
    }
    if (plain) {
      tensors.push_back({name + ".weight", module + ".weight", plain_, {out, in}, Fill::kNormal, 0, deviation});
    } else {
      tensors.push_back({name + ".weight", module + ".weight", DType::kU32, {out, in * bits / 32}, Fill::kCodes});
      tensors.push_back({name + ".scales", module + ".scales", spec_.scale_dtype, {out, in / group}, Fill::kScale, 0, deviation, bits});
      tensors.push_back({name + ".biases", module + ".scales", spec_.scale_dtype, {out, in / group}, Fill::kScaleBias, 0, deviation, bits});
    }
    if (bias) vector(module + ".bias", out, Fill::kNormal, plain_, 0, 0.1);
    return {};
  }

  Status layer(std::int64_t i) {
    const std::string at = "layers." + std::to_string(i) + ".";
    const std::int64_t hidden = spec_.hidden_size, inner = spec_.intermediate_size;
    norm(at + "input_layernorm", hidden);
    LOCKSTEP_TRY(is_full(i) ? attention(at + "self_attn.") : delta_net(at + "linear_attn."));
    norm(at + "post_attention_layernorm", hidden);
    LOCKSTEP_TRY(linear(at + "mlp.gate_proj", inner, hidden, spec_.mlp_bias));
    LOCKSTEP_TRY(linear(at + "mlp.up_proj", inner, hidden, spec_.mlp_bias));
    return linear(at + "mlp.down_proj", hidden, inner, spec_.mlp_bias);
  }

  Status attention(const std::string& at) {
    const std::int64_t hidden = spec_.hidden_size, q = spec_.num_attention_heads * spec_.head_dim, kv = spec_.num_key_value_heads * spec_.head_dim;
    LOCKSTEP_TRY(linear(at + "q_proj", hybrid_ ? 2 * q : q, hidden, spec_.attention_bias));
    LOCKSTEP_TRY(linear(at + "k_proj", kv, hidden, spec_.attention_bias));
    LOCKSTEP_TRY(linear(at + "v_proj", kv, hidden, spec_.attention_bias));
    LOCKSTEP_TRY(linear(at + "o_proj", hidden, q, spec_.attention_bias));
    if (spec_.family == "llama") return {};
    norm(at + "q_norm", spec_.head_dim);
    norm(at + "k_norm", spec_.head_dim);
    return {};
  }

  Status delta_net(const std::string& at) {
    const std::int64_t hidden = spec_.hidden_size, heads = spec_.linear_num_value_heads, value = heads * spec_.linear_value_head_dim;
    const std::int64_t channels = 2 * spec_.linear_num_key_heads * spec_.linear_key_head_dim + value;
    const DType state = spec_.state_f32 ? DType::kF32 : DType::kBF16;
    LOCKSTEP_TRY(linear(at + "in_proj_qkv", channels, hidden, false));
    LOCKSTEP_TRY(linear(at + "in_proj_z", value, hidden, false));
    LOCKSTEP_TRY(linear(at + "in_proj_b", heads, hidden, false));
    LOCKSTEP_TRY(linear(at + "in_proj_a", heads, hidden, false));
    vector(at + "conv1d.weight", channels, Fill::kNormal, plain_, 0, 0.5);
    if (spec_.converted)
      tensors.back().shape = {channels, 4, 1};
    else
      tensors.back().shape = {channels, 1, 4};
    vector(at + "A_log", heads, Fill::kDecayLog, state, 0, 0);
    vector(at + "dt_bias", heads, Fill::kStepBias, plain_, 0, 0);
    vector(at + "norm.weight", spec_.linear_value_head_dim, Fill::kNormal, state, 1, 0.1);
    return linear(at + "out_proj", hidden, value, false);
  }

  const RandomCheckpoint& spec_;
  bool hybrid_ = false;
  std::string body_, head_;
  DType plain_ = DType::kBF16;
};

/// Adds the rotary keys as published files of the family spell them: rope_parameters for Qwen3.5, flat keys for the others.
void add_rope(const RandomCheckpoint& spec, json::object& config) {
  using Type = kernels::RopeScaling::Type;
  if (spec.family == "qwen3_5" && spec.rope_scaling.type == Type::kDefault) {
    config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", spec.rope_theta}, {"partial_rotary_factor", spec.partial_rotary_factor}};
    return;
  }
  config["rope_theta"] = spec.rope_theta;
  if (spec.family == "qwen3_5") config["partial_rotary_factor"] = spec.partial_rotary_factor;
  const auto& s = spec.rope_scaling;
  if (s.type == Type::kDefault) return;
  json::object scaling{{"rope_type", s.type == Type::kLinear ? "linear" : "llama3"}, {"factor", s.factor}};
  if (s.type == Type::kLlama3) {
    scaling["low_freq_factor"] = s.low_freq_factor;
    scaling["high_freq_factor"] = s.high_freq_factor;
    scaling["original_max_position_embeddings"] = std::int64_t(s.original_max_position_embeddings);
  }
  config["rope_scaling"] = std::move(scaling);
}

json::object text_config_json(const RandomCheckpoint& spec, const Layout& layout) {
  const bool hybrid = spec.family == "qwen3_5";
  json::object c{{"model_type", hybrid ? "qwen3_5_text" : spec.family},
                 {"dtype", spec.format == Format::kF32 ? "float32" : spec.format == Format::kF16 ? "float16" : "bfloat16"},
                 {"vocab_size", spec.vocab_size},
                 {"hidden_size", spec.hidden_size},
                 {"intermediate_size", spec.intermediate_size},
                 {"num_hidden_layers", spec.num_hidden_layers},
                 {"num_attention_heads", spec.num_attention_heads},
                 {"num_key_value_heads", spec.num_key_value_heads},
                 {"head_dim", spec.head_dim},
                 {"hidden_act", "silu"},
                 {"max_position_embeddings", spec.max_position_embeddings},
                 {"rms_norm_eps", spec.rms_norm_eps},
                 {"tie_word_embeddings", spec.tied},
                 {"attention_bias", spec.attention_bias}};
  add_rope(spec, c);
  if (spec.family == "llama") c["mlp_bias"] = spec.mlp_bias;
  c["eos_token_id"] = json::value_from(spec.eos_token_ids);
  if (!hybrid) return c;
  c["attn_output_gate"] = true;
  c["full_attention_interval"] = spec.full_attention_interval;
  json::array kinds;
  for (std::int64_t i = 0; i < spec.num_hidden_layers; i++) kinds.emplace_back(layout.is_full(i) ? "full_attention" : "linear_attention");
  c["layer_types"] = std::move(kinds);
  c["linear_conv_kernel_dim"] = 4;
  c["linear_num_key_heads"] = spec.linear_num_key_heads;
  c["linear_num_value_heads"] = spec.linear_num_value_heads;
  c["linear_key_head_dim"] = spec.linear_key_head_dim;
  c["linear_value_head_dim"] = spec.linear_value_head_dim;
  return c;
}

json::object config_json(const RandomCheckpoint& spec, const Layout& layout) {
  json::object c = text_config_json(spec, layout);
  if (spec.family == "qwen3_5")
    c = json::object{{"architectures", {"Qwen3_5ForConditionalGeneration"}}, {"model_type", "qwen3_5"}, {"tie_word_embeddings", spec.tied},
                     {"text_config", std::move(c)}};
  else
    c["architectures"] = {spec.family == "llama" ? "LlamaForCausalLM" : "Qwen3ForCausalLM"};
  if (spec.format == Format::kMlx) {
    json::object block{{"group_size", spec.group_size}, {"bits", spec.bits}, {"mode", "affine"}};
    for (const auto& entry : layout.overrides) block[entry.key()] = entry.value();
    c["quantization"] = block;
    c["quantization_config"] = std::move(block);
  }
  return c;
}

Status check_numbers(const RandomCheckpoint& spec) {
  auto affine_ok = [](int bits, int group) {
    return (bits == 2 || bits == 3 || bits == 4 || bits == 5 || bits == 6 || bits == 8) && (group == 32 || group == 64 || group == 128);
  };
  if (!affine_ok(spec.bits, spec.group_size)) return invalid("bits must be 2, 3, 4, 5, 6 or 8 and the group 32, 64 or 128");
  for (const auto& entry : spec.overrides) {
    if (spec.format != Format::kMlx) return invalid("an override of bits needs the mlx format");
    if (!entry.plain && !affine_ok(entry.bits, entry.group_size)) return invalid("override " + entry.pattern + ": no such bits or group");
  }
  if (spec.family != "qwen3_5" && (spec.converted || !spec.layer_kinds.empty()))
    return invalid("only qwen3_5 has a converted layout and layer kinds");
  if (!spec.layer_kinds.empty() && (std::int64_t(spec.layer_kinds.size()) != spec.num_hidden_layers ||
                                    spec.layer_kinds.find_first_not_of("lf") != std::string::npos))
    return invalid("layer kinds are one letter, l or f, for each of " + std::to_string(spec.num_hidden_layers) + " layers");
  if (spec.full_attention_interval < 1) return invalid("full_attention_interval must be 1 or more");
  if (spec.mlp_bias && spec.family != "llama") return invalid("only llama has MLP biases");
  if (spec.num_hidden_layers < 1 || spec.num_hidden_layers > 1024) return invalid("num_hidden_layers must be 1 to 1024");
  if (spec.shards < 1 || spec.shards > 512) return invalid("shards must be 1 to 512");
  return {};
}

Status io(const fs::path& path, const std::string& what) { return Error{ErrorCode::kIo, path.string() + ": " + what, path.string()}; }

const char* dtype_name(DType t) {
  return t == DType::kU32 ? "U32" : t == DType::kF32 ? "F32" : t == DType::kF16 ? "F16" : "BF16";
}

/// One safetensors file, streamed. MLX's writer does not pad its header, so tensors may lie at any byte; others pad to 8.
Status write_shard(const fs::path& path, std::span<const RandomTensor> tensors, const RandomCheckpoint& spec) {
  json::object header{{"__metadata__", {{"format", spec.format == Format::kMlx ? "mlx" : "pt"}}}};
  std::size_t offset = 0;
  for (const auto& t : tensors) {
    header[t.name] = {{"dtype", dtype_name(t.dtype)}, {"shape", json::value_from(t.shape)}, {"data_offsets", {offset, offset + t.bytes()}}};
    offset += t.bytes();
  }
  std::string text = json::serialize(header);
  if (spec.format != Format::kMlx) text.resize((text.size() + 7) / 8 * 8, ' ');
  std::ofstream out(path, std::ios::binary);
  const std::uint64_t length = text.size();
  out.write(reinterpret_cast<const char*>(&length), 8);
  out.write(text.data(), std::streamsize(text.size()));
  std::vector<std::byte> buffer(std::size_t(4) << 20);
  for (const auto& t : tensors) {
    RandomTensorStream stream(t, spec.seed);
    for (std::size_t done = 0; done < t.bytes();) {
      const std::size_t n = std::min(buffer.size(), t.bytes() - done);
      stream.next({buffer.data(), n});
      out.write(reinterpret_cast<const char*>(buffer.data()), std::streamsize(n));
      done += n;
    }
    if (!out) return io(path, "cannot write");
  }
  out.close();
  return out ? Status{} : io(path, "cannot write");
}

Status write_text(const fs::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  return out ? Status{} : io(path, "cannot write");
}

Status write_shards(const fs::path& folder, std::vector<RandomTensor> tensors, const RandomCheckpoint& spec) {
  std::size_t total = 0;
  for (const auto& t : tensors) total += t.bytes();
  std::error_code ignored;
  const auto space = fs::space(folder, ignored);
  if (!ignored && space.available < total + (total >> 6))
    return Error{ErrorCode::kDoesNotFit, folder.string() + ": " + std::to_string(total) + " bytes do not fit in " + std::to_string(space.available), {}};
  if (spec.shards == 1) {
    if (spec.format != Format::kMlx)  // the official writer puts wide types first
      std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return dtype_bytes(a.dtype) > dtype_bytes(b.dtype); });
    return write_shard(folder / "model.safetensors", tensors, spec);
  }
  if (std::size_t(spec.shards) > tensors.size()) return invalid("more shards than tensors");
  const char* stem = spec.family == "qwen3_5" && !spec.converted ? "model.safetensors-%05d-of-%05d.safetensors" : "model-%05d-of-%05d.safetensors";
  json::object map;
  std::size_t begin = 0, done = 0;
  for (int s = 0; s < spec.shards; s++) {
    char name[64];
    std::snprintf(name, sizeof name, stem, s + 1, spec.shards);
    const std::size_t last = tensors.size() - std::size_t(spec.shards - 1 - s);  // every later shard gets one at least
    std::size_t end = begin;
    do done += tensors[end++].bytes();
    while (end < last && (s + 1 == spec.shards || done < total / std::size_t(spec.shards) * std::size_t(s + 1)));
    for (std::size_t i = begin; i < end; i++) map[tensors[i].name] = name;
    LOCKSTEP_TRY(write_shard(folder / name, {tensors.data() + begin, end - begin}, spec));
    begin = end;
  }
  return write_text(folder / "model.safetensors.index.json",
                    json::serialize(json::object{{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}}));
}

Status copy_tokenizer(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (!fs::exists(from / "tokenizer.json", error)) return io(from / "tokenizer.json", "is not there");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"}) {
    if (!fs::exists(from / name, error)) continue;
    fs::copy_file(from / name, to / name, error);
    if (error) return io(to / name, error.message());
    fs::permissions(to / name, fs::perms::owner_write, fs::perm_options::add, error);
  }
  return {};
}

}  // namespace

Status write_random_checkpoint(const RandomCheckpoint& spec, const fs::path& folder) {
  LOCKSTEP_TRY(check_numbers(spec));
  Layout layout(spec);
  const std::string config = json::serialize(config_json(spec, layout));
  if (auto parsed = checkpoint::parse_config(config); !parsed.ok()) return parsed.error();  // bounds of every number, before any product
  LOCKSTEP_TRY(layout.build());
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return io(folder, error.message());
  if (!fs::is_empty(folder, error) || error) return io(folder, "is not an empty folder");
  LOCKSTEP_TRY(write_text(folder / "config.json", json::serialize(config_json(spec, layout)) + "\n"));  // now with the overrides
  if (!spec.tokenizer_folder.empty()) LOCKSTEP_TRY(copy_tokenizer(spec.tokenizer_folder, folder));
  return write_shards(folder, std::move(layout.tensors), spec);
}

}  // namespace lockstep::testing
