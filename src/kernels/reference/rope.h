// Float64 reference of head norm and rotation (kernels/ops/rope.h).
#pragma once
#include <span>
#include <vector>

#include "base/bfloat16.h"

namespace lockstep::kernels::reference {

/// One head: optional norm (weight empty: none), then rotate-half on the first 2 * cos.size() components with the given f32 cos and sin.
std::vector<double> norm_rope(std::span<const bf16> x, std::span<const float> weight, double eps, std::span<const float> cos,
                              std::span<const float> sin);

}  // namespace lockstep::kernels::reference
