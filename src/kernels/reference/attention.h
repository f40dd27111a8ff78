// Float64 reference of attention (kernels/ops/attention.h) with the error bound of the canonical f32 form.
#pragma once
#include <span>
#include <vector>

#include "base/bfloat16.h"

namespace lockstep::kernels::reference {

struct AttentionRow {
  std::vector<double> out;    // [head_dim], times sigmoid(gate) where there is one; not stored to bf16
  std::vector<double> bound;  // what the canonical form may be off before its store, first order (ops/attention.h)
};
/// One query over keys 0 .. n-1: q [head_dim], k and v [n][head_dim], gate [head_dim] or empty. Plain softmax of q k / sqrt(head_dim).
AttentionRow attention(std::span<const bf16> q, std::span<const bf16> k, std::span<const bf16> v, std::span<const bf16> gate);

}  // namespace lockstep::kernels::reference
