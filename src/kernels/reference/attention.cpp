#include "kernels/reference/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference/elementwise.h"

namespace lockstep::kernels::reference {

AttentionRow attention(std::span<const bf16> q, std::span<const bf16> k, std::span<const bf16> v, std::span<const bf16> gate) {
  constexpr double u = 0x1p-24, ln2 = 0.6931471805599453, exp2_error = 1.5 * 0x1p-23;
  const std::size_t dim = q.size(), n = k.size() / dim;
  const double c = 1.4426950408889634 / std::sqrt(double(dim)), tiles = double((n + 127) / 128);
  std::vector<double> x(n), error(n);  // scores in powers of two, relative error of each weight
  double top = -INFINITY, largest = 0;
  for (std::size_t i = 0; i < n; i++) {
    double s = 0, partials = 0;
    for (std::size_t d = 0; d < dim; d++) {
      s += double(to_float(q[d])) * to_float(k[i * dim + d]);
      partials += std::fabs(s);
    }
    x[i] = s * c;
    error[i] = ln2 * (c * u * partials + 2 * u * std::fabs(x[i]));
    top = std::max(top, x[i]);
    largest = std::max(largest, std::fabs(x[i]));
  }
  // The differences x - ms and m - m', each rounded, and one power of two with each, in every fold a rounding of O a and of the sum.
  const double shared = exp2_error + tiles * (exp2_error + 2 * u) + 4 * ln2 * u * largest;
  double sum = 0, sum_error = 0;
  std::vector<double> o(dim), size(dim), o_error(dim);
  for (std::size_t i = 0; i < n; i++) {
    const double p = std::exp2(x[i] - top), e = error[i] + shared;
    sum += p;
    sum_error += p * e;
    for (std::size_t d = 0; d < dim; d++) {
      const double pv = p * to_float(v[i * dim + d]);
      o[d] += pv;
      size[d] += std::fabs(pv);
      o_error[d] += std::fabs(pv) * e;
    }
  }
  const double chain = double(std::min<std::size_t>(n, 128)) * u;  // additions of one tile
  AttentionRow row;
  for (std::size_t d = 0; d < dim; d++) {
    double y = o[d] / sum, bound = (o_error[d] + chain * size[d]) / sum + std::fabs(y) * (sum_error / sum + chain + 2 * u);
    if (!gate.empty()) {
      const double g = sigmoid(to_float(gate[d]));
      y *= g;
      bound = bound * g + std::fabs(y) * 6 * u;
    }
    row.out.push_back(y);
    row.bound.push_back(1.01 * bound + 0x1p-126);  // second order; results flushed to zero
  }
  return row;
}

}  // namespace lockstep::kernels::reference
