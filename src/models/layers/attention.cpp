#include "models/loader.h"

namespace lockstep::models {

// models.md 3.2 (gated, q_proj rows grouped by head: query, then gate), 7.2, 7.6.
Result<kernels::AttentionLayer> load_attention(Loader& loader, const std::string& prefix, const checkpoint::Config& config, int cache_layer,
                                               bool output_gate, bool head_norms, bool offset_norms) {
  const std::int64_t hidden = config.hidden_size, q = config.num_attention_heads * config.head_dim, kv = config.num_key_value_heads * config.head_dim;
  const std::string self = prefix + ".self_attn.";
  kernels::AttentionLayer layer;
  LOCKSTEP_ASSIGN(layer.input_norm, loader.norm(prefix + ".input_layernorm.weight", hidden, offset_norms));
  LOCKSTEP_ASSIGN(layer.q, loader.matrix(self + "q_proj", output_gate ? 2 * q : q, hidden));
  LOCKSTEP_ASSIGN(layer.k, loader.matrix(self + "k_proj", kv, hidden));
  LOCKSTEP_ASSIGN(layer.v, loader.matrix(self + "v_proj", kv, hidden));
  LOCKSTEP_ASSIGN(layer.o, loader.matrix(self + "o_proj", hidden, q));
  LOCKSTEP_ASSIGN(layer.q_bias, loader.bias(self + "q_proj", output_gate ? 2 * q : q, config.attention_bias));
  LOCKSTEP_ASSIGN(layer.k_bias, loader.bias(self + "k_proj", kv, config.attention_bias));
  LOCKSTEP_ASSIGN(layer.v_bias, loader.bias(self + "v_proj", kv, config.attention_bias));
  LOCKSTEP_ASSIGN(layer.o_bias, loader.bias(self + "o_proj", hidden, config.attention_bias));
  if (head_norms) {
    LOCKSTEP_ASSIGN(layer.q_norm, loader.norm(self + "q_norm.weight", config.head_dim, offset_norms));
    LOCKSTEP_ASSIGN(layer.k_norm, loader.norm(self + "k_norm.weight", config.head_dim, offset_norms));
  }
  layer.eps = float(config.rms_norm_eps);
  layer.cache_layer = cache_layer;
  return layer;
}

}  // namespace lockstep::models
