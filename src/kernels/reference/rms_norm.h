// Float64 references of the norms (kernels/ops/rms_norm.h): exact up to float64 rounding, nothing is stored to bf16.
#pragma once
#include <span>
#include <vector>

#include "base/bfloat16.h"

namespace lockstep::kernels::reference {

/// x[i] / sqrt(mean(x^2) + eps) * weight[i].
std::vector<double> rms_norm(std::span<const bf16> x, std::span<const float> weight, double eps);
/// o[i] / sqrt(mean(o^2) + eps) * weight[i] * silu(z[i]).
std::vector<double> gated_rms_norm(std::span<const float> o, std::span<const bf16> z, std::span<const float> weight, double eps);
/// x[i] / sqrt(sum x^2 + 1e-6).
std::vector<double> l2_norm(std::span<const bf16> x);

}  // namespace lockstep::kernels::reference
