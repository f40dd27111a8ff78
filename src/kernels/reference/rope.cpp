#include "kernels/reference/rope.h"

#include "kernels/reference/rms_norm.h"

namespace lockstep::kernels::reference {

std::vector<double> norm_rope(std::span<const bf16> x, std::span<const float> weight, double eps, std::span<const float> cos,
                              std::span<const float> sin) {
  std::vector<double> out(x.size());
  if (weight.empty()) {
    for (std::size_t i = 0; i < x.size(); i++) out[i] = to_float(x[i]);
  } else {
    out = rms_norm(x, weight, eps);
  }
  const std::size_t half = cos.size();
  for (std::size_t i = 0; i < half; i++) {
    const double a = out[i], b = out[half + i];
    out[i] = a * cos[i] - b * sin[i];
    out[half + i] = b * cos[i] + a * sin[i];
  }
  return out;
}

}  // namespace lockstep::kernels::reference
