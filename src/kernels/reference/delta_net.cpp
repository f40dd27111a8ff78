#include "kernels/reference/delta_net.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference/elementwise.h"

namespace lockstep::kernels::reference {

double conv_silu(std::span<const double> taps, std::span<const double> x) {
  double sum = 0;
  for (std::size_t t = 0; t < taps.size(); t++) sum += taps[t] * x[t];
  return silu(sum);
}

double decay(double a, double neg_exp_a, double dt_bias) { return std::max(neg_exp_a * softplus(a + dt_bias), -1e4); }

DeltaNetHead delta_net(int key_dim, int value_dim, double scale, std::span<const bf16> q, std::span<const bf16> k, std::span<const bf16> v,
                       std::span<const float> g, std::span<const float> beta) {
  const std::size_t dk = std::size_t(key_dim), dv = std::size_t(value_dim), rows = g.size();
  DeltaNetHead h;
  h.key_dim = key_dim;
  h.value_dim = value_dim;
  h.state.assign(dk * dv, 0);
  h.out.assign(rows * dv, 0);
  h.out_bound.assign(rows * dv, 0);
  h.state_bound.assign(dv, 0);
  std::vector<double> size(dv);  // of a chunk's column: largest norm of the state, every |u| and |v|
  double cum = 0;                // |G| of the chunk
  const auto column = [&](std::size_t j) {
    double n = 0;
    for (std::size_t i = 0; i < dk; i++) n += h.state[i * dv + j] * h.state[i * dv + j];
    return std::sqrt(n);
  };
  for (std::size_t t = 0; t < rows; t++) {
    if (t % 16 == 0) {
      cum = 0;
      for (std::size_t j = 0; j < dv; j++) size[j] = column(j);
    }
    cum += std::fabs(g[t]);
    const double keep = std::exp(double(g[t]));
    // A row's sums have at most key_dim and 16 terms, the powers are off by 3 units and by what 16 roundings of G make of them.
    const double unit = 0x1p-24 * (key_dim + 64 + 16 * cum);
    for (std::size_t j = 0; j < dv; j++) {
      double sk = 0;
      for (std::size_t i = 0; i < dk; i++) {
        double& s = h.state[i * dv + j];
        s *= keep;
        sk += s * to_float(k[t * dk + i]);
      }
      const double value = to_float(v[t * dv + j]), u = beta[t] * (value - sk);
      double o = 0;
      for (std::size_t i = 0; i < dk; i++) {
        double& s = h.state[i * dv + j];
        s += double(to_float(k[t * dk + i])) * u;
        o += s * to_float(q[t * dk + i]);
      }
      size[j] = std::max(size[j], column(j)) + std::fabs(u) + std::fabs(value);
      // Errors made earlier do not grow: |I - beta k k^T| and exp(g) are at most 1 for |k| <= 1.
      h.state_bound[j] += unit * size[j];
      h.out[t * dv + j] = scale * o;
      h.out_bound[t * dv + j] = scale * (h.state_bound[j] + unit * size[j]) * 1.01 + 0x1p-126;  // |q| is 1 up to its rounding
    }
  }
  return h;
}

}  // namespace lockstep::kernels::reference
