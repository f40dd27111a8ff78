#include "models/loader.h"

namespace lockstep::models {

// models.md 3.1: down(silu(gate u) * up u), u normed by post_attention_layernorm.
Result<kernels::MlpLayer> load_mlp(Loader& loader, const std::string& prefix, const checkpoint::Config& config, bool offset_norms) {
  const std::int64_t hidden = config.hidden_size, inner = config.intermediate_size;
  const std::string mlp = prefix + ".mlp.";
  kernels::MlpLayer layer;
  LOCKSTEP_ASSIGN(layer.norm, loader.norm(prefix + ".post_attention_layernorm.weight", hidden, offset_norms));
  LOCKSTEP_ASSIGN(layer.gate, loader.matrix(mlp + "gate_proj", inner, hidden));
  LOCKSTEP_ASSIGN(layer.up, loader.matrix(mlp + "up_proj", inner, hidden));
  LOCKSTEP_ASSIGN(layer.down, loader.matrix(mlp + "down_proj", hidden, inner));
  LOCKSTEP_ASSIGN(layer.gate_bias, loader.bias(mlp + "gate_proj", inner, config.mlp_bias));
  LOCKSTEP_ASSIGN(layer.up_bias, loader.bias(mlp + "up_proj", inner, config.mlp_bias));
  LOCKSTEP_ASSIGN(layer.down_bias, loader.bias(mlp + "down_proj", hidden, config.mlp_bias));
  layer.eps = float(config.rms_norm_eps);
  return layer;
}

}  // namespace lockstep::models
