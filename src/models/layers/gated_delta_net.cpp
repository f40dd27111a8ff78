#include "models/loader.h"

namespace lockstep::models {

// models.md 3.4; linear_attn.norm is plain in every layout (2.4).
Result<kernels::DeltaNetLayer> load_delta_net(Loader& loader, const std::string& prefix, const checkpoint::Config& config, int state_layer,
                                              bool offset_norms) {
  const std::int64_t hidden = config.hidden_size, heads = config.linear_num_value_heads, values = heads * config.linear_value_head_dim;
  const std::int64_t channels = 2 * config.linear_num_key_heads * config.linear_key_head_dim + values;
  const std::string mixer = prefix + ".linear_attn.";
  kernels::DeltaNetLayer layer;
  LOCKSTEP_ASSIGN(layer.input_norm, loader.norm(prefix + ".input_layernorm.weight", hidden, offset_norms));
  LOCKSTEP_ASSIGN(layer.in_qkv, loader.matrix(mixer + "in_proj_qkv", channels, hidden));
  LOCKSTEP_ASSIGN(layer.in_z, loader.matrix(mixer + "in_proj_z", values, hidden));
  LOCKSTEP_ASSIGN(layer.in_b, loader.matrix(mixer + "in_proj_b", heads, hidden));
  LOCKSTEP_ASSIGN(layer.in_a, loader.matrix(mixer + "in_proj_a", heads, hidden));
  LOCKSTEP_ASSIGN(layer.out, loader.matrix(mixer + "out_proj", hidden, values));
  LOCKSTEP_ASSIGN(layer.conv_taps, loader.conv_taps(mixer + "conv1d.weight", channels, config.linear_conv_kernel_dim));
  LOCKSTEP_ASSIGN(layer.neg_exp_a, loader.neg_exp(mixer + "A_log", heads));
  LOCKSTEP_ASSIGN(layer.dt_bias, loader.vector(mixer + "dt_bias", heads));
  LOCKSTEP_ASSIGN(layer.norm, loader.vector(mixer + "norm.weight", config.linear_value_head_dim));
  layer.eps = float(config.rms_norm_eps);
  layer.state_layer = state_layer;
  return layer;
}

}  // namespace lockstep::models
