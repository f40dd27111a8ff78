#include "kernels/reference/rms_norm.h"

#include <cmath>

#include "kernels/reference/elementwise.h"

namespace lockstep::kernels::reference {
namespace {
template <class T>
double squares(std::span<const T> x) {
  double sum = 0;
  for (T v : x) {
    double d;
    if constexpr (std::is_same_v<T, bf16>) d = to_float(v);
    else d = v;
    sum += d * d;
  }
  return sum;
}
}  // namespace

std::vector<double> rms_norm(std::span<const bf16> x, std::span<const float> weight, double eps) {
  const double inv = 1 / std::sqrt(squares(x) / double(x.size()) + eps);
  std::vector<double> out(x.size());
  for (std::size_t i = 0; i < x.size(); i++) out[i] = to_float(x[i]) * inv * weight[i];
  return out;
}

std::vector<double> gated_rms_norm(std::span<const float> o, std::span<const bf16> z, std::span<const float> weight, double eps) {
  const double inv = 1 / std::sqrt(squares(o) / double(o.size()) + eps);
  std::vector<double> out(o.size());
  for (std::size_t i = 0; i < o.size(); i++) out[i] = o[i] * inv * weight[i] * silu(to_float(z[i]));
  return out;
}

std::vector<double> l2_norm(std::span<const bf16> x) {
  const double length = std::sqrt(squares(x) + 1e-6);
  std::vector<double> out(x.size());
  for (std::size_t i = 0; i < x.size(); i++) out[i] = to_float(x[i]) / length;
  return out;
}

}  // namespace lockstep::kernels::reference
