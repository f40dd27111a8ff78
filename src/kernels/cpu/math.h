// exp, exp2, log, log1p and what is made of them, one polynomial in explicit fused steps each (EXACTNESS items 6 and 7; bounds:
// kernels/ops/math.h). Written once on F32; a lane's result depends on that lane alone. Include after target.h only.
#pragma once
#include "kernels/cpu/simd.h"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kRoundToInteger = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer and leaves that in the low bits

/// y * 2^n for n in the low bits of t = n + kRoundToInteger; y and the result normal (or the result exactly 2^128: infinity).
LOCKSTEP_INLINE F32 scale_by_power(F32 y, F32 t) { return as_float(add(as_int(y), shift_left<23>(as_int(t)))); }

/// Zero below -87.33654 (results there would be below 2^-126), infinity above 88.72283, NaN for NaN.
LOCKSTEP_INLINE F32 exp(F32 x) {
  const F32 t = fma(x, set1(1.44269502f), set1(kRoundToInteger)), k = sub(t, set1(kRoundToInteger));
  F32 r = fnma(k, set1(0.693359375f), x);      // k times 10 bits of ln 2: exact
  r = fnma(k, set1(-0.000212194442f), r);      // the rest of ln 2
  // exp(r) = 1 + r + r^2 P(r), |r| <= 0.3466; r^2 P is minimax, off by 3.2e-9.
  F32 p = set1(0.00139504892f);
  p = fma(p, r, set1(0.00836888794f));
  p = fma(p, r, set1(0.041666206f));
  p = fma(p, r, set1(0.166665182f));
  p = fma(p, r, set1(0.5f));
  p = add(fma(p, mul(r, r), r), set1(1.0f));
  F32 y = scale_by_power(p, t);
  y = select(less(x, set1(-87.33654f)), zero(), y);
  y = select(less(set1(88.72283f), x), set1(kInfinity), y);
  return select(equal(x, x), y, x);
}

/// Zero below -126, infinity from 128 on, NaN for NaN. Whole numbers are exact.
LOCKSTEP_INLINE F32 exp2(F32 x) {
  const F32 t = add(x, set1(kRoundToInteger)), f = sub(x, sub(t, set1(kRoundToInteger)));
  // 2^f = 1 + f P(f), |f| <= 0.5; f P is minimax, off by 1.9e-9.
  F32 p = set1(0.000154763024f);
  p = fma(p, f, set1(0.0013400272f));
  p = fma(p, f, set1(0.00961800385f));
  p = fma(p, f, set1(0.055503279f));
  p = fma(p, f, set1(0.240226507f));
  p = fma(p, f, set1(0.693147182f));
  p = fma(p, f, set1(1.0f));
  F32 y = scale_by_power(p, t);
  y = select(less(x, set1(-126.0f)), zero(), y);
  y = select(less(x, set1(128.0f)), y, set1(kInfinity));
  return select(equal(x, x), y, x);
}

/// k ln 2 + log(1 + f) + c for f in [-0.293, 0.415] and |c| of the size of a rounding error.
LOCKSTEP_INLINE F32 log_sum(F32 k, F32 f, F32 c) {
  // log(1 + f) = 2 s + s z P(z), s = f / (2 + f), z = s^2 <= 0.0295; with 2 s = f - s f. s z P is off by less than 6e-12.
  const F32 s = div(f, add(f, set1(2.0f))), z = mul(s, s);
  F32 p = set1(0.233327657f);
  p = fma(p, z, set1(0.285507232f));
  p = fma(p, z, set1(0.400001228f));
  p = fma(p, z, set1(0.666666687f));
  const F32 rest = fnma(z, p, f);                              // log(1 + f) = f - s rest
  const F32 small = fma(k, set1(-0.000212194442f), c);
  return fma(k, set1(0.693359375f), add(f, fnma(s, rest, small)));
}
/// u = 2^k m with m in [sqrt(1/2), sqrt(2)), u normal and positive.
LOCKSTEP_INLINE void split_power(F32 u, F32& k, F32& m) {
  const I32 n = shift_right<23>(sub(as_int(u), set1(std::int32_t(0x3f3504f3))));  // bits of sqrt(1/2)
  k = to_float(n);
  m = as_float(sub(as_int(u), shift_left<23>(n)));
}
/// The values of log at zero, below it, at infinity and NaN, by u; elsewhere y.
LOCKSTEP_INLINE F32 log_specials(F32 u, F32 y) {
  y = select(less(u, set1(0x1p-126f)), set1(-kInfinity), y);
  y = select(less(u, zero()), set1(std::numeric_limits<float>::quiet_NaN()), y);
  y = select(equal(u, set1(kInfinity)), u, y);
  return select(equal(u, u), y, u);
}

/// -infinity for zeros (and what is flushed to one), NaN below.
LOCKSTEP_INLINE F32 log(F32 x) {
  F32 k, m;
  split_power(x, k, m);
  return log_specials(x, log_sum(k, sub(m, set1(1.0f)), zero()));
}

/// log(1 + x), exact in the small: 1 + x = 2^k (1 + f) with what rounding 1 + x lost given back.
LOCKSTEP_INLINE F32 log1p(F32 x) {
  const F32 one = set1(1.0f), u = add(x, one);
  F32 k, m;
  split_power(u, k, m);
  const F32 lost = select(less(x, one), sub(x, sub(u, one)), sub(one, sub(u, x)));
  const Mask small = equal(k, zero());  // f is x itself there
  const F32 f = select(small, x, sub(m, one)), c = select(small, zero(), div(lost, u));
  return log_specials(u, log_sum(k, f, c));
}

LOCKSTEP_INLINE F32 sigmoid(F32 x) { return div(set1(1.0f), add(set1(1.0f), exp(negate(x)))); }
LOCKSTEP_INLINE F32 silu(F32 x) { return div(x, add(set1(1.0f), exp(negate(x)))); }
/// max(x, 0) + log1p(exp(-|x|)); NaN for NaN.
LOCKSTEP_INLINE F32 softplus(F32 x) { return add(max(zero(), x), log1p(exp(negate(magnitude(x))))); }

/// 1 / sqrt(mean of squares + eps), every step IEEE.
template <class T>
LOCKSTEP_INLINE float inverse_rms(const T* x, int n, float eps) {
  return 1.0f / std::sqrt(sum_of_squares(x, n) / float(n) + eps);
}

/// What may lie in a cache or a state (EXACTNESS item 9): NaN is 0, an infinity the largest bf16 of its sign; *flag = 1 if it was one.
LOCKSTEP_INLINE bf16 finite_bf16(bf16 x, std::uint8_t* flag) {
  if ((x & 0x7f80) != 0x7f80) return x;
  *flag = 1;
  return x & 0x7f ? bf16(0) : bf16((x & 0x8000) | 0x7f7f);
}

/// One value through the same steps.
LOCKSTEP_INLINE float exp(float x) {
  float y[kLanes];
  store(y, exp(set1(x)));
  return y[0];
}
LOCKSTEP_INLINE float exp2(float x) {
  float y[kLanes];
  store(y, exp2(set1(x)));
  return y[0];
}

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
