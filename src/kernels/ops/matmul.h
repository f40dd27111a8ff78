// matmul: y[r][o] = sum_i x[r][i] W[o][i] (+ bias[o]), x bf16 rows, W a plain (bf16) or MLX affine weight. The meaning of the bits.
//
// A row of y depends on that row of x and on the weight alone, never on the number of rows, their place, the outputs worked beside it, the
// thread or the instruction set. Denormals (inputs and results) count as zero of their sign everywhere.
//
// PLAIN. W is bf16; f16 and f32 files are rounded once to bf16 at load. The inputs run in blocks of 32 into 16 f32 lanes: lane i takes input
// 32 b + 2 i + 1, then 32 b + 2 i, each one fused multiply-add from zero; inputs past the end are zeros. At the end lanes i and i + 8 are
// added, then i + 4, i + 2, i + 1, then + 0.0f, so that the sign of a zero sum cannot show. (EXACTNESS item 7.)
//
// AFFINE. W = scale * code + bias per group of `group_size` inputs, kept unrounded; x is cut into the same groups. With the group's largest
// magnitude in [2^e, 2^(e+1)) every x of it becomes the integer round_half_even(x * 2^(14-e)), at most 32640 in magnitude. A group whose
// largest magnitude is below 2^-112 counts as zeros, and so does one that holds a NaN or an infinity, which flags the row. Per output, groups
// in order, acc from zero:
//     I = sum code * x,  X = sum x            exact: |I| <= 255 * 32640 * 128 < 2^31, |X| <= 32640 * 128 < 2^24
//     p = scale * f32(I);  p = fma(bias, f32(X), p);  acc = fma(p, 2^(e-14), acc)
//
// OUTPUT. sum + bias[o] in f32 where there is a bias, then by the job's kind: f32 as it is; or stored to bf16; or added to a residual:
// store(f32(y) + f32(store(sum + bias))). Outputs that are not finite keep no promise on the bits of their NaN except that a store gives 0x7fc0.
//
// ACCURACY, against the exact sum over values whose denormals are zero. u = 2^-24, gamma(n) = n u / (1 - n u).
//   plain:   an input passes at most 2 ceil(k/32) fused steps and 4 additions, so
//            |error| <= gamma(2 ceil(k/32) + 4) sum |w x| + (k + 47) 2^-126
//            (each of the at most k + 31 steps and 16 additions that flushes loses less than 2^-126).
//   affine:  cutting x moves it by at most unit/2, unit = 2^(e-14); f32(I) rounds once, p twice, acc once a group:
//            |error| <= sum_g (unit_g / 2) sum_i |w_i| + gamma(G + 3) sum_g (|scale_g| sum code |x'| + |bias_g| sum |x'|)
//                       + sum over groups that count as zeros of sum |w x| + G 2^-124,  x' = |x| + unit/2, G groups
//            (a flushed product p loses less than 2 * 2^-126 and is then multiplied by unit_g, at most 2^113: the contract's inputs keep unit_g <= 1).
//   A bias adds one rounding: (1 + u) error + u |sum + bias|.
#pragma once

namespace lockstep::kernels {

inline constexpr int kDotBlock = 32;          // inputs of one step of the 16 lanes
inline constexpr int kLargestInteger = 32640;  // of a cut x: the largest bf16 significand, 255 / 128, times 2^14
inline constexpr int kZeroGroupExponent = 14;  // a group whose largest biased exponent is at most this (magnitude below 2^-112) counts as zeros

}  // namespace lockstep::kernels
