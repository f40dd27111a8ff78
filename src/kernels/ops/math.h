// Meaning of the elementary functions: one polynomial each in explicit fused steps, the same on every instruction set; never the
// platform's libm and never an estimate instruction (EXACTNESS items 6 and 7). No code: kernels/cpu/math.h has the steps.
//
// u = 2^-24 is half the spacing of f32 above 1. Denormal inputs are zeros and denormal results flush to zero on every thread.
//
//   exp(x)     k = nearest integer of x log2(e), r = x - k ln 2 (ln 2 in two parts, the first product exact), 1 + (r + r^2 P(r)), times
//              2^k. 0 below -87.33654, infinity above 88.72283, NaN for NaN; exp(0) = 1. Off by at most 3 u relative: P 3.2e-9 / 0.7, r
//              2^-26, the sum r + r^2 P 2^-26, the last addition u / 0.7: 2.3 u in all.
//   exp2(x)    k = nearest integer, f = x - k (exact), 1 + f P(f), times 2^k. 0 below -126, infinity from 128 on; whole numbers are exact.
//              At most 3 u relative: P 1.9e-9 / 0.7, its last two roundings 2 u f P <= 0.7 u / 0.7, the last fused step u / 0.7: 2.5 u.
//   log(x)     x = 2^k m, m in [sqrt(1/2), sqrt(2)), f = m - 1 (exact), s = f / (2 + f), log = k ln 2 + (f - s (f - s^2 P(s^2))).
//              -infinity for zeros, NaN below. At most 4 u relative: the last step u; f - s rest and the small part of k ln 2 at most 2 u
//              of |f|, s rest 3 u of at most f^2 / 2, and |f| <= 1.3 times the result.
//   log1p(x)   as log of 1 + x = 2^k (1 + f); where k = 0, f is x itself, else what rounding 1 + x lost, over 1 + x, is added. At most 5 u
//              relative.
//   sigmoid(x) 1 / (1 + exp(-x)), IEEE division. At most 5 u relative (exp 3, sum 1, quotient 1), and 2^-126 where exp or the result
//              flushes.
//   silu(x)    x / (1 + exp(-x)). At most 5 u relative, and 3e-37 where exp overflows (x < -88.7).
//   softplus(x) max(x, 0) + log1p(exp(-|x|)). At most 9 u relative (exp 3, log1p 5, sum 1), and 2^-126 where exp is flushed.
//
// Table of angles (kernels/rope_table.h): the angle is an f32 product; it is reduced by pi/2 in three parts and sin and cos are one
// polynomial each in float64 with separate multiplications and additions, which no instruction set does otherwise; one rounding to f32. Off
// by at most half a spacing of f32 plus 1e-11.
