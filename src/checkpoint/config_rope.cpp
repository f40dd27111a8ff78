#include <cmath>

#include "checkpoint/config_parts.h"

namespace lockstep::checkpoint {
namespace {

using kernels::RopeScaling;

constexpr double kMaxTheta = 1e15, kMaxFactor = 1e6, kMaxOriginalPositions = 1 << 24;

/// rope_type (alias type) and its numbers (models.md 7.3).
Result<RopeScaling> read_scaling(const Fields& rope, const Config& config) {
  for (const auto& entry : rope.json())
    if (entry.value().is_object())
      return rope.unsupported({entry.key().data(), entry.key().size()}, "is an object: rotary parameters by layer type cannot be served");
  LOCKSTEP_ASSIGN(std::optional<std::string> type, rope.string("rope_type"));
  LOCKSTEP_ASSIGN(const std::optional<std::string> alias, rope.string("type"));
  if (type && alias && *type != *alias) return rope.wrong("type", "is \"" + printable(*alias, 80) + "\" but rope_type is \"" + printable(*type, 80) + "\"");
  const char* key = type || !alias ? "rope_type" : "type";
  if (!type) type = alias.value_or("default");
  RopeScaling scaling;
  // Text has one position for every section, so multimodal rotation is the plain one (models.md 3.3).
  if (*type == "default" || (*type == "mrope" && config.model_type == "qwen3_5")) return scaling;
  if (*type != "linear" && *type != "llama3")
    return rope.unsupported(key, "is \"" + printable(*type, 80) + "\"; default, linear and llama3 can be served");
  scaling.type = *type == "linear" ? RopeScaling::Type::kLinear : RopeScaling::Type::kLlama3;
  LOCKSTEP_ASSIGN(scaling.factor, rope.required_number("factor", 1, kMaxFactor));
  if (scaling.type == RopeScaling::Type::kLinear) return scaling;
  LOCKSTEP_ASSIGN(const std::optional<double> low, rope.number("low_freq_factor", 1e-6, kMaxFactor));
  LOCKSTEP_ASSIGN(const std::optional<double> high, rope.number("high_freq_factor", 1e-6, kMaxFactor));
  LOCKSTEP_ASSIGN(const std::optional<double> original, rope.number("original_max_position_embeddings", 1, kMaxOriginalPositions));
  scaling.low_freq_factor = low.value_or(1);
  scaling.high_freq_factor = high.value_or(4);
  scaling.original_max_position_embeddings = original.value_or(8192);
  if (!(scaling.low_freq_factor < scaling.high_freq_factor)) return rope.wrong("low_freq_factor", "is not below high_freq_factor");
  return scaling;
}

bool same(const RopeScaling& a, const RopeScaling& b) {
  return a.type == b.type && a.factor == b.factor && a.low_freq_factor == b.low_freq_factor && a.high_freq_factor == b.high_freq_factor &&
         a.original_max_position_embeddings == b.original_max_position_embeddings;
}

/// A number that may stand in rope_parameters or flat; two that differ contradict each other.
Result<std::optional<double>> number_of_either(const Fields& text, const std::optional<Fields>& rope, const char* key, double low, double high) {
  LOCKSTEP_ASSIGN(const std::optional<double> flat, text.number(key, low, high));
  if (!rope) return flat;
  LOCKSTEP_ASSIGN(const std::optional<double> inner, rope->number(key, low, high));
  if (inner && flat && *inner != *flat) return rope->wrong(key, "differs from " + text.path(key));
  return inner ? inner : flat;
}

}  // namespace

Status read_rope(const Fields& text, Config& config) {
  LOCKSTEP_ASSIGN(const std::optional<Fields> parameters, text.object("rope_parameters"));
  LOCKSTEP_ASSIGN(const std::optional<Fields> older, text.object("rope_scaling"));
  if (older) {
    LOCKSTEP_ASSIGN(config.rope_scaling, read_scaling(*older, config));
  }
  if (parameters) {
    LOCKSTEP_ASSIGN(const RopeScaling scaling, read_scaling(*parameters, config));
    if (older && !same(scaling, config.rope_scaling)) return text.wrong("rope_scaling", "contradicts rope_parameters");
    config.rope_scaling = scaling;
  }
  LOCKSTEP_ASSIGN(const std::optional<double> theta, number_of_either(text, parameters ? parameters : older, "rope_theta", 1, kMaxTheta));
  if (!theta && config.model_type != "llama") return text.wrong("rope_theta", "is missing, here and in rope_parameters");
  config.rope_theta = theta.value_or(10000);

  LOCKSTEP_ASSIGN(const std::optional<double> partial, number_of_either(text, parameters ? parameters : older, "partial_rotary_factor", 0, 1));
  if (config.model_type != "qwen3_5") {
    if (partial.value_or(1) != 1) return text.unsupported("partial_rotary_factor", "is not 1, which " + config.model_type + " cannot be served with");
    config.rotary_dim = int(config.head_dim);
    return {};
  }
  if (!partial) return text.wrong("partial_rotary_factor", "is missing, here and in rope_parameters");
  const double rotary = double(config.head_dim) * *partial;
  config.rotary_dim = int(rotary);
  if (config.rotary_dim < 2 || config.rotary_dim % 2 != 0 || rotary != config.rotary_dim)
    return text.unsupported("partial_rotary_factor", "times head_dim is " + std::to_string(rotary) + "; it must be an even whole number");
  return {};
}

}  // namespace lockstep::checkpoint
