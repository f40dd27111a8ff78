// CPU rms_norm (meaning and bits: kernels/ops/rms_norm.h).
#pragma once
#include "base/bfloat16.h"
#include "kernels/cpu/dispatch.h"

namespace lockstep::kernels::cpu {
struct RmsNormKernels {
  /// One row: out[i] = store((x[i] * inv) * weight[i]); x, out [width] bf16, weight [width] f32.
  void (*rms_norm)(const bf16* x, const float* weight, int width, float eps, bf16* out);
  /// Gated norm of DeltaNet, one head: out = store(((o * inv) * weight) * silu(z)); o, weight [dim] f32, z, out [dim] bf16.
  void (*gated_rms_norm)(const float* o, const bf16* z, const float* weight, int dim, float eps, bf16* out);
  /// out = store(x / sqrt(sum x^2 + 1e-6)), one head; NaN in the result becomes 0, an infinity the largest bf16, and *flag is set to 1.
  void (*l2_norm)(const bf16* x, int dim, bf16* out, std::uint8_t* flag);
};
LOCKSTEP_DECLARE_KERNELS(RmsNormKernels, rms_norm)
}  // namespace lockstep::kernels::cpu
