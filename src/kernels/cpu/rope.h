// CPU rotation of q and k heads, with the optional head norm before it (kernels/ops/rope.h).
#pragma once
#include "base/bfloat16.h"
#include "kernels/cpu/dispatch.h"

namespace lockstep::kernels::cpu {
struct RopeKernels {
  /// One head: optional rms norm over head_dim (weight f32 or nullptr), then rotate-half on the first rotary_dim components with
  /// cos, sin [rotary_dim / 2] f32 of the row's position, all in f32, store once. out [head_dim]; may alias x.
  void (*norm_rope)(const bf16* x, const float* weight, int head_dim, float eps, const float* cos, const float* sin, int rotary_dim, bf16* out);
};
LOCKSTEP_DECLARE_KERNELS(RopeKernels, rope)
}  // namespace lockstep::kernels::cpu
