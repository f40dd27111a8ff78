// exp and log in float64, one source for host and device: explicit fused steps, no libm, no contraction (EXACTNESS item 8). Denormal
// results flush to zero. Errors below 2 ulp on the ranges a draw uses (tests/unit/base).
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace lockstep::exact {

inline double exp(double x) {
  if (x != x) return x;
  if (x > 709.782712893384) return std::numeric_limits<double>::infinity();
  if (x < -708.0) return 0.0;
  constexpr double kLog2e = 1.4426950408889634, kLn2Hi = 6.93147180369123816490e-01, kLn2Lo = 1.90821492927058770002e-10;
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  const double k = std::fma(x, kLog2e, kRound) - kRound;
  double r = std::fma(-k, kLn2Hi, x);
  r = std::fma(-k, kLn2Lo, r);
  // Taylor to r^13: |r| <= 0.347, the first term left out is below 5e-18.
  constexpr double c[] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0, 1.0 / 40320.0,
                          1.0 / 5040.0,       1.0 / 720.0,       1.0 / 120.0,      1.0 / 24.0,      1.0 / 6.0,      0.5};
  double p = c[0];
  for (int i = 1; i < 12; i++) p = std::fma(p, r, c[i]);
  p = std::fma(p, r * r, r) + 1.0;
  const std::int64_t n = std::int64_t(k);
  if (n > 1023) return p * std::bit_cast<double>(std::uint64_t(2046) << 52) * 2.0;  // n == 1024
  return p * std::bit_cast<double>(std::uint64_t(n + 1023) << 52);
}

inline double log(double x) {
  if (x != x || x < 0) return std::numeric_limits<double>::quiet_NaN();
  if (x < std::numeric_limits<double>::min()) return -std::numeric_limits<double>::infinity();
  if (x == std::numeric_limits<double>::infinity()) return x;
  constexpr double kLn2Hi = 6.93147180369123816490e-01, kLn2Lo = 1.90821492927058770002e-10;
  const std::uint64_t u = std::bit_cast<std::uint64_t>(x);
  std::int64_t e = std::int64_t(u >> 52) - 1023;
  double m = std::bit_cast<double>((u & 0x000fffffffffffffull) | 0x3ff0000000000000ull);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    e++;
  }
  const double f = m - 1.0, s = f / (2.0 + f), z = s * s;
  // log(1 + f) = 2 s (1 + z/3 + z^2/5 + ...); z <= 0.0295, 11 terms leave less than 1e-18.
  constexpr double c[] = {1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3};
  double p = c[0];
  for (int i = 1; i < 11; i++) p = std::fma(p, z, c[i]);
  const double k = double(e), tail = 2.0 * s * z * p;
  // 2 s = f - s f, with f exact; summed small to large. k * kLn2Hi is exact.
  return std::fma(k, kLn2Hi, f) + (std::fma(k, kLn2Lo, tail) - s * f);
}

}  // namespace lockstep::exact
