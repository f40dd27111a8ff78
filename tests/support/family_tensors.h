// Takes every tensor that a family has, so that a loader's checks run without a model.
#pragma once
#include "checkpoint/config.h"
#include "checkpoint/weights.h"

namespace lockstep::testing {

inline Status take_all_tensors(const checkpoint::Config& c, const checkpoint::Weights& w) {
  const bool hybrid = c.model_type == "qwen3_5", head_norms = c.model_type != "llama";
  const std::int64_t q = c.num_attention_heads * c.head_dim, kv = c.num_key_value_heads * c.head_dim, hidden = c.hidden_size;
  const auto linear = [&](const std::string& module, std::int64_t out, std::int64_t in, bool bias) -> Status {
    LOCKSTEP_TRY(w.linear(module, out, in));
    if (bias) LOCKSTEP_TRY(w.vector(module + ".bias", out));
    return {};
  };
  LOCKSTEP_TRY(linear("embed_tokens", c.vocab_size, hidden, false));
  if (w.has("lm_head")) LOCKSTEP_TRY(linear("lm_head", c.vocab_size, hidden, false));
  LOCKSTEP_TRY(w.vector("norm.weight", hidden));
  for (std::int64_t i = 0; i < c.num_hidden_layers; i++) {
    const std::string at = "layers." + std::to_string(i) + ".";
    LOCKSTEP_TRY(w.vector(at + "input_layernorm.weight", hidden));
    LOCKSTEP_TRY(w.vector(at + "post_attention_layernorm.weight", hidden));
    LOCKSTEP_TRY(linear(at + "mlp.gate_proj", c.intermediate_size, hidden, c.mlp_bias));
    LOCKSTEP_TRY(linear(at + "mlp.up_proj", c.intermediate_size, hidden, c.mlp_bias));
    LOCKSTEP_TRY(linear(at + "mlp.down_proj", hidden, c.intermediate_size, c.mlp_bias));
    if (c.full_attention[std::size_t(i)]) {
      const std::string mixer = at + "self_attn.";
      LOCKSTEP_TRY(linear(mixer + "q_proj", hybrid ? 2 * q : q, hidden, c.attention_bias));
      LOCKSTEP_TRY(linear(mixer + "k_proj", kv, hidden, c.attention_bias));
      LOCKSTEP_TRY(linear(mixer + "v_proj", kv, hidden, c.attention_bias));
      LOCKSTEP_TRY(linear(mixer + "o_proj", hidden, q, c.attention_bias));
      if (head_norms) LOCKSTEP_TRY(w.vector(mixer + "q_norm.weight", c.head_dim));
      if (head_norms) LOCKSTEP_TRY(w.vector(mixer + "k_norm.weight", c.head_dim));
      continue;
    }
    const std::string mixer = at + "linear_attn.";
    const std::int64_t heads = c.linear_num_value_heads, value = heads * c.linear_value_head_dim;
    const std::int64_t channels = 2 * c.linear_num_key_heads * c.linear_key_head_dim + value;
    LOCKSTEP_TRY(linear(mixer + "in_proj_qkv", channels, hidden, false));
    LOCKSTEP_TRY(linear(mixer + "in_proj_z", value, hidden, false));
    LOCKSTEP_TRY(linear(mixer + "in_proj_b", heads, hidden, false));
    LOCKSTEP_TRY(linear(mixer + "in_proj_a", heads, hidden, false));
    LOCKSTEP_TRY(linear(mixer + "out_proj", hidden, value, false));
    LOCKSTEP_TRY(w.conv(mixer + "conv1d.weight", channels, c.linear_conv_kernel_dim));
    LOCKSTEP_TRY(w.vector(mixer + "A_log", heads));
    LOCKSTEP_TRY(w.vector(mixer + "dt_bias", heads));
    LOCKSTEP_TRY(w.vector(mixer + "norm.weight", c.linear_value_head_dim));
  }
  return w.check_all_used();
}

}  // namespace lockstep::testing
