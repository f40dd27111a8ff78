// Float64 reference of Gated DeltaNet: the delta rule token by token, with the error bound of the canonical chunked f32 form.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/bfloat16.h"

namespace lockstep::kernels::reference {

/// silu(sum over taps of taps[t] * x[t]), oldest tap first.
double conv_silu(std::span<const double> taps, std::span<const double> x);
/// max(neg_exp_a * softplus(a + dt_bias), -1e4).
double decay(double a, double neg_exp_a, double dt_bias);

/// One value head. S starts at zero at position 0.
struct DeltaNetHead {
  int key_dim = 0, value_dim = 0;
  std::vector<double> state;        // [key_dim][value_dim] after the last row
  std::vector<double> out;          // [rows][value_dim]
  std::vector<double> state_bound;  // [value_dim]: what every state element of a column may be off
  std::vector<double> out_bound;    // [rows][value_dim]
};
/// q, k [rows][key_dim] (normalised), v [rows][value_dim], g, beta [rows]. S = exp(g) S; u = beta (v - S^T k); S += k u^T; out = scale S^T
/// q.
DeltaNetHead delta_net(int key_dim, int value_dim, double scale, std::span<const bf16> q, std::span<const bf16> k, std::span<const bf16> v,
                       std::span<const float> g, std::span<const float> beta);

}  // namespace lockstep::kernels::reference
