#include "kernels/cpu/elementwise.h"

#include "kernels/cpu/target.h"

#include "kernels/cpu/math.h"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {
namespace {

void silu_mul_values(const bf16* gate, const bf16* up, std::int64_t n, bf16* out) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, mul(silu(load(gate + i)), load(up + i)));
  if (const int rest = int(n - i); rest > 0) store_first(out + i, mul(silu(load_first(gate + i, rest)), load_first(up + i, rest)), rest);
}

std::uint8_t any_not_finite(const float* x, std::int64_t n) {
  // x - x is zero for a finite x and NaN else; nothing else can make a sum of such values NaN.
  F32 sum = zero();
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const F32 v = load(x + i);
    sum = add(sum, sub(v, v));
  }
  if (i < n) {
    const F32 v = load_first(x + i, int(n - i));
    sum = add(sum, sub(v, v));
  }
  return all(equal(sum, sum)) ? 0 : 1;
}

void exp_values(const float* x, std::int64_t n, float* out) { map(x, n, out, [](F32 v) { return exp(v); }); }
void exp2_values(const float* x, std::int64_t n, float* out) { map(x, n, out, [](F32 v) { return exp2(v); }); }
void log_values(const float* x, std::int64_t n, float* out) { map(x, n, out, [](F32 v) { return log(v); }); }
void log1p_values(const float* x, std::int64_t n, float* out) { map(x, n, out, [](F32 v) { return log1p(v); }); }

}  // namespace

const ElementwiseKernels elementwise = {silu_mul_values, any_not_finite, exp_values, exp2_values, log_values, log1p_values};

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA

#include "kernels/cpu/target_end.h"
