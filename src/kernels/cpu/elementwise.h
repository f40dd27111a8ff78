// CPU element-wise parts (kernels/ops/elementwise.h).
#pragma once
#include <cstdint>

#include "base/bfloat16.h"
#include "kernels/cpu/dispatch.h"

namespace lockstep::kernels::cpu {
struct ElementwiseKernels {
  /// out = store(silu(gate) * up), f32 inside.
  void (*silu_mul)(const bf16* gate, const bf16* up, std::int64_t n, bf16* out);
  /// 1 if any of the n values is NaN or infinite.
  std::uint8_t (*not_finite)(const float* x, std::int64_t n);
  /// out[i] = exp(x[i]) and so on with the backend's one polynomial each; for tables made at load and for the contract.
  void (*exp)(const float* x, std::int64_t n, float* out);
  void (*exp2)(const float* x, std::int64_t n, float* out);
  void (*log)(const float* x, std::int64_t n, float* out);
  void (*log1p)(const float* x, std::int64_t n, float* out);
};
LOCKSTEP_DECLARE_KERNELS(ElementwiseKernels, elementwise)
}  // namespace lockstep::kernels::cpu
