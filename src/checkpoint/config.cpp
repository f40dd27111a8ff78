#include "checkpoint/config.h"

#include <algorithm>
#include <array>

#include "checkpoint/config_parts.h"
#include "checkpoint/json_file.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::size_t kConfigBytes = std::size_t(4) << 20;
// Sane bounds: several times the largest model of these families, and small enough that no product of a few of them overflows 63 bits.
constexpr std::int64_t kMaxLayers = 1024, kMaxHidden = 65536, kMaxIntermediate = 1 << 18, kMaxVocab = (1 << 23) - 1, kMaxHeads = 1024, kMaxHeadDim = 512,
                       kMaxPositions = 1 << 24;
// What the kernels do (kernels/cpu/attention.h, delta_net.h).
constexpr std::int64_t kHeadDimStep = 16, kLinearDimStep = 32, kMaxLinearDim = 256, kConvTaps = 4;

std::string family_of(const std::string& model_type) {
  if (model_type == "qwen3_5" || model_type == "qwen3_5_text") return "qwen3_5";
  if (model_type == "llama" || model_type == "mistral") return "llama";
  return model_type == "qwen3" ? "qwen3" : "";
}

Status refuse_drafters(const Fields& root) {
  const boost::json::value* list = root.find("architectures");
  if (!list || !list->is_array()) return {};
  for (const auto& entry : list->get_array()) {
    if (!entry.is_string()) continue;
    const std::string_view name(entry.get_string().data(), entry.get_string().size());
    if (name.starts_with("DFlash"))
      return root.unsupported("architectures", "names " + printable(name, 80) + ": this folder holds a drafter, not a model that can be served");
  }
  return {};
}

Status read_family(const Fields& root, const Fields& text, Config& config) {
  LOCKSTEP_TRY(refuse_drafters(root));
  for (const Fields* fields : {&root, &text}) {
    LOCKSTEP_ASSIGN(const std::optional<std::string> written, fields->string("model_type"));
    if (!written) continue;
    const std::string family = family_of(*written);
    if (family.empty())
      return fields->unsupported("model_type", "is \"" + printable(*written, 80) + "\"; qwen3_5, llama, mistral and qwen3 can be served");
    if (config.model_type.empty()) config.written_model_type = *written;
    if (!config.model_type.empty() && config.model_type != family)
      return fields->unsupported("model_type", "is \"" + printable(*written, 80) + "\" inside a " + config.written_model_type);
    config.model_type = family;
  }
  if (config.model_type.empty()) return root.wrong("model_type", "is missing");
  return {};
}

Status refuse_number_of_experts(const Fields& text) {
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    const boost::json::value* v = text.find(key);
    if (v && !(v->is_int64() && v->get_int64() == 0)) return text.unsupported(key, "is " + shown(*v) + ": mixtures of experts cannot be served");
  }
  return {};
}

Status refuse_sliding_window(const Fields& text, const Config& config) {
  LOCKSTEP_ASSIGN(const std::optional<bool> used, text.boolean("use_sliding_window"));
  const boost::json::value* window = text.find("sliding_window");
  // Without the switch, Qwen configs carry a window that is not used; in others the number itself is the switch.
  const bool on = used ? *used : window && config.model_type == "llama";
  if (!on) return {};
  if (used && *used) return text.unsupported("use_sliding_window", "is true: sliding window attention cannot be served");
  return text.unsupported("sliding_window", "is " + shown(*window) + ": sliding window attention cannot be served");
}

Status refuse_overrides(const Fields& fields) {
  LOCKSTEP_ASSIGN(const std::optional<Fields> overrides, fields.object("modeling_overrides"));
  if (!overrides) return {};
  for (const auto& entry : overrides->json()) {
    const bool causal = entry.value().is_string() && entry.value().get_string() == "causal";
    if (!causal && !entry.value().is_null())
      return overrides->unsupported({entry.key().data(), entry.key().size()}, "is " + shown(entry.value()) + ": only causal attention can be served");
  }
  return {};
}

/// Switches that change the graph: any other value than the one the kernels do is refused.
Status refuse_other_graphs(const Fields& root, const Fields& text, const Config& config) {
  struct Switch {
    const char* key;
    bool only;
    const char* family;  // nullptr: every one
  };
  constexpr std::array<Switch, 6> switches = {{{"is_causal", true, nullptr},
                                               {"use_bidirectional_attention", false, nullptr},
                                               {"rope_traditional", false, nullptr},
                                               {"attn_output_gate", true, "qwen3_5"},
                                               {"attention_bias", false, "qwen3_5"},
                                               {"mlp_bias", false, "qwen3_5"}}};
  for (const auto& s : switches) {
    if (s.family && config.model_type != s.family) continue;
    LOCKSTEP_ASSIGN(const std::optional<bool> value, text.boolean(s.key));
    if (value && *value != s.only) return text.unsupported(s.key, std::string("is ") + (*value ? "true" : "false") + ", which cannot be served");
  }
  LOCKSTEP_ASSIGN(const std::optional<bool> mlp_bias, text.boolean("mlp_bias"));
  if (config.model_type == "qwen3" && mlp_bias.value_or(false)) return text.unsupported("mlp_bias", "is true, which qwen3 does not have");
  for (const char* key : {"hidden_act", "output_gate_type"}) {
    LOCKSTEP_ASSIGN(const std::optional<std::string> name, text.string(key));
    if (name && *name != "silu" && *name != "swish") return text.unsupported(key, "is \"" + printable(*name, 80) + "\"; only silu (swish) can be served");
  }
  LOCKSTEP_TRY(refuse_number_of_experts(text));
  LOCKSTEP_TRY(refuse_sliding_window(text, config));
  LOCKSTEP_TRY(refuse_overrides(text));
  return refuse_overrides(root);
}

Status read_shape(const Fields& text, Config& config) {
  LOCKSTEP_ASSIGN(config.vocab_size, text.required_integer("vocab_size", 1, kMaxVocab));
  LOCKSTEP_ASSIGN(config.hidden_size, text.required_integer("hidden_size", 1, kMaxHidden));
  LOCKSTEP_ASSIGN(config.intermediate_size, text.required_integer("intermediate_size", 1, kMaxIntermediate));
  LOCKSTEP_ASSIGN(config.num_hidden_layers, text.required_integer("num_hidden_layers", 1, kMaxLayers));
  LOCKSTEP_ASSIGN(config.num_attention_heads, text.required_integer("num_attention_heads", 1, kMaxHeads));
  LOCKSTEP_ASSIGN(const std::optional<std::int64_t> kv_heads, text.integer("num_key_value_heads", 1, kMaxHeads));
  LOCKSTEP_ASSIGN(const std::optional<std::int64_t> head_dim, text.integer("head_dim", 1, kMaxHeadDim));
  LOCKSTEP_ASSIGN(config.max_position_embeddings, text.required_integer("max_position_embeddings", 1, kMaxPositions));
  LOCKSTEP_ASSIGN(config.rms_norm_eps, text.required_number("rms_norm_eps", 1e-30, 0.1));
  const bool llama = config.model_type == "llama";  // the one family whose files leave these two out
  if (!llama && !kv_heads) return text.wrong("num_key_value_heads", "is missing");
  if (!llama && !head_dim) return text.wrong("head_dim", "is missing");
  config.num_key_value_heads = kv_heads.value_or(config.num_attention_heads);
  if (!head_dim && config.hidden_size % config.num_attention_heads != 0)
    return text.wrong("num_attention_heads", "is " + std::to_string(config.num_attention_heads) + ", which does not divide hidden_size " +
                                                 std::to_string(config.hidden_size) + ", and there is no head_dim");
  config.head_dim = head_dim.value_or(config.hidden_size / config.num_attention_heads);
  if (config.head_dim > kMaxHeadDim || config.head_dim % kHeadDimStep != 0)
    return text.unsupported("head_dim", "is " + std::to_string(config.head_dim) + "; multiples of " + std::to_string(kHeadDimStep) + " up to " +
                                            std::to_string(kMaxHeadDim) + " can be served");
  if (config.num_attention_heads % config.num_key_value_heads != 0)
    return text.wrong("num_key_value_heads", "is " + std::to_string(config.num_key_value_heads) + ", which does not divide num_attention_heads " +
                                                 std::to_string(config.num_attention_heads));
  LOCKSTEP_ASSIGN(const std::optional<bool> attention_bias, text.boolean("attention_bias"));
  LOCKSTEP_ASSIGN(const std::optional<bool> mlp_bias, text.boolean("mlp_bias"));
  config.attention_bias = attention_bias.value_or(false);
  config.mlp_bias = mlp_bias.value_or(false);
  return {};
}

Status read_linear_attention(const Fields& text, Config& config) {
  LOCKSTEP_ASSIGN(config.linear_num_key_heads, text.required_integer("linear_num_key_heads", 1, kMaxHeads));
  LOCKSTEP_ASSIGN(config.linear_num_value_heads, text.required_integer("linear_num_value_heads", 1, kMaxHeads));
  LOCKSTEP_ASSIGN(config.linear_key_head_dim, text.required_integer("linear_key_head_dim", 1, 65536));
  LOCKSTEP_ASSIGN(config.linear_value_head_dim, text.required_integer("linear_value_head_dim", 1, 65536));
  LOCKSTEP_ASSIGN(config.linear_conv_kernel_dim, text.required_integer("linear_conv_kernel_dim", 1, 65536));
  if (config.linear_num_value_heads % config.linear_num_key_heads != 0)
    return text.wrong("linear_num_key_heads", "is " + std::to_string(config.linear_num_key_heads) + ", which does not divide linear_num_value_heads " +
                                                  std::to_string(config.linear_num_value_heads));
  for (const auto& [key, dim] : {std::pair{"linear_key_head_dim", config.linear_key_head_dim}, {"linear_value_head_dim", config.linear_value_head_dim}})
    if (dim > kMaxLinearDim || dim % kLinearDimStep != 0)
      return text.unsupported(key, "is " + std::to_string(dim) + "; multiples of " + std::to_string(kLinearDimStep) + " up to " +
                                       std::to_string(kMaxLinearDim) + " can be served");
  if (config.linear_conv_kernel_dim != kConvTaps)
    return text.unsupported("linear_conv_kernel_dim", "is " + std::to_string(config.linear_conv_kernel_dim) + "; only 4 can be served");
  return {};
}

/// layer_types where it is written; else every full_attention_interval-th layer is full (models.md 1.2).
Status read_layer_kinds(const Fields& text, Config& config) {
  const bool hybrid = config.model_type == "qwen3_5";
  const std::size_t layers = std::size_t(config.num_hidden_layers);
  const boost::json::value* list = text.find("layer_types");
  if (!list && !hybrid) config.full_attention.assign(layers, true);
  if (!list && hybrid) {
    LOCKSTEP_ASSIGN(const std::int64_t interval, text.required_integer("full_attention_interval", 1, kMaxLayers));
    for (std::size_t i = 0; i < layers; i++) config.full_attention.push_back(std::int64_t(i + 1) % interval == 0);
  }
  if (list) {
    if (!list->is_array() || list->get_array().size() != layers)
      return text.wrong("layer_types", "is " + shown(*list) + "; it must be a list of " + std::to_string(layers) + ", one for each layer");
    for (std::size_t i = 0; i < layers; i++) {
      const auto& kind = list->get_array()[i];
      const bool full = kind.is_string() && kind.get_string() == "full_attention", linear = kind.is_string() && kind.get_string() == "linear_attention";
      if (!full && !(linear && hybrid)) return text.unsupported("layer_types[" + std::to_string(i) + "]", "is " + shown(kind) + ", which cannot be served");
      config.full_attention.push_back(full);
    }
  }
  // The convolution's shape tells how norms are stored (models.md 2.4); without one nothing does.
  if (hybrid && std::find(config.full_attention.begin(), config.full_attention.end(), false) == config.full_attention.end())
    return text.unsupported("layer_types", "has no linear attention layer, which a qwen3_5 needs");
  return {};
}

}  // namespace

Status add_eos_ids(const Fields& fields, std::vector<std::int32_t>& ids) {
  const boost::json::value* v = fields.find("eos_token_id");
  if (!v) return {};
  const auto add = [&](const boost::json::value& id) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= kMaxVocab) return false;
    const auto n = std::int32_t(id.get_int64());
    if (std::find(ids.begin(), ids.end(), n) == ids.end()) ids.push_back(n);
    return true;
  };
  bool good = !v->is_array() ? add(*v) : v->get_array().size() <= 256;
  if (good && v->is_array())
    for (const auto& id : v->get_array()) good = good && add(id);
  if (!good) return fields.wrong("eos_token_id", "is " + shown(*v) + "; it must be a token id, or a list of at most 256");
  return {};
}

Result<Config> parse_config(std::string_view json) {
  LOCKSTEP_ASSIGN(const boost::json::object object, parse_json_object(json, "config.json"));
  const Fields root(object, "config.json");
  LOCKSTEP_ASSIGN(const std::optional<Fields> nested, root.object("text_config"));
  const Fields text = nested.value_or(root);
  Config config;
  LOCKSTEP_TRY(read_family(root, text, config));
  LOCKSTEP_TRY(refuse_other_graphs(root, text, config));
  LOCKSTEP_TRY(read_shape(text, config));
  if (config.model_type == "qwen3_5") LOCKSTEP_TRY(read_linear_attention(text, config));
  LOCKSTEP_TRY(read_layer_kinds(text, config));
  LOCKSTEP_TRY(read_rope(text, config));
  LOCKSTEP_TRY(read_quantization(root, text, config));
  LOCKSTEP_ASSIGN(config.tie_word_embeddings, text.boolean("tie_word_embeddings"));
  if (!config.tie_word_embeddings) {
    LOCKSTEP_ASSIGN(config.tie_word_embeddings, root.boolean("tie_word_embeddings"));
  }
  config.has_vision = root.find("vision_config") != nullptr;
  LOCKSTEP_TRY(add_eos_ids(text, config.eos_token_ids));
  LOCKSTEP_TRY(add_eos_ids(root, config.eos_token_ids));
  return config;
}

Result<Config> read_config(const std::filesystem::path& folder) {
  LOCKSTEP_ASSIGN(const std::string json, read_text_file(folder / "config.json", kConfigBytes));
  return parse_config(json);
}

Result<GenerationConfig> parse_generation_config(std::string_view json) {
  LOCKSTEP_ASSIGN(const boost::json::object object, parse_json_object(json, "generation_config.json"));
  const Fields fields(object, "generation_config.json");
  GenerationConfig config;
  LOCKSTEP_ASSIGN(config.do_sample, fields.boolean("do_sample"));
  LOCKSTEP_ASSIGN(config.temperature, fields.number("temperature", 0, 100));
  LOCKSTEP_ASSIGN(config.top_p, fields.number("top_p", 0, 1));
  LOCKSTEP_ASSIGN(config.min_p, fields.number("min_p", 0, 1));
  LOCKSTEP_ASSIGN(const std::optional<std::int64_t> top_k, fields.integer("top_k", -1, kMaxVocab));
  if (top_k) config.top_k = int(std::max<std::int64_t>(0, *top_k));  // -1 and 0 both mean that it is off
  LOCKSTEP_TRY(add_eos_ids(fields, config.eos_token_ids));
  return config;
}

Result<GenerationConfig> read_generation_config(const std::filesystem::path& folder) {
  auto json = read_text_file(folder / "generation_config.json", kConfigBytes);
  if (!json.ok() && json.error().code == ErrorCode::kNotFound) return GenerationConfig{};
  if (!json.ok()) return json.error();
  return parse_generation_config(*json);
}

}  // namespace lockstep::checkpoint
