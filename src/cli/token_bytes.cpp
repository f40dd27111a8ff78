#include "cli/token_bytes.h"

namespace lockstep::cli {

StateBytes state_bytes(const kernels::ModelShape& shape) {
  const kernels::RopeTable no_rope;
  const auto backend = kernels::make_cpu_backend(shape, {kernels::Isa::kGeneric, 1, 1, 1}, &no_rope);
  const kernels::StateLayout& layout = backend->layout();
  return {layout.recurrent_bytes, layout.page_tokens ? layout.page_bytes / std::size_t(layout.page_tokens) : 0};
}

TokenBytes token_bytes(const models::Model& model, double length) {
  const StateBytes states = state_bytes(model.shape());
  return {double(model.step_bytes()), double(states.recurrent) * (1 + 2.0 / 16), double(states.token) * length};
}

double head_operations(const models::Model& model) { return 2.0 * double(model.shape().vocab) * double(model.shape().hidden); }

double prefill_operations(const models::Model& model, double length) {
  const kernels::ModelShape& s = model.shape();
  const double mlp = 3.0 * double(s.hidden) * double(s.intermediate);
  const double heads = double(s.heads * s.head_dim), kv = double(s.kv_heads * s.head_dim);
  const double attention =
      double(s.hidden) * (heads * (s.output_gate ? 3 : 2) + 2 * kv) + heads * length;  // q, gate, o, k, v; scores and values
  const double values = double(s.value_heads * s.value_dim);
  const double delta_net =
      double(s.hidden) * (double(s.conv_channels()) + 2 * values + 2 * double(s.value_heads)) + 3 * double(s.key_dim) * values;
  return 2 * (double(s.attention_layers) * (attention + mlp) + double(s.delta_net_layers) * (delta_net + mlp));
}

}  // namespace lockstep::cli
