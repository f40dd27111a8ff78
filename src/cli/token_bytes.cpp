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

double prefill_operations(const models::Model& model, double length) { return model.row_operations(length / 2); }

}  // namespace lockstep::cli
