#include "sampling/masses.h"

#include <immintrin.h>

#include "base/check.h"

namespace lockstep::sampling {
namespace {

std::uint64_t masses_plain(std::span<const float> logits, double temperature, double x_max, std::uint64_t* masses) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < logits.size(); i++) {
    masses[i] = mass(double(logits[i]) / temperature - x_max);
    total += masses[i];
  }
  return total;
}

// exact::exp's own steps on four numbers in kMassFloor .. 0 (tests/unit/sampling holds the two equal): over a vocabulary of 248,077 the
// plain loop takes longer than a small model's head.
[[gnu::target("avx2,fma")]] __m256d exp4(__m256d x) {
  const __m256d kLog2e = _mm256_set1_pd(1.4426950408889634), kRound = _mm256_set1_pd(6755399441055744.0);
  const __m256d kLn2Hi = _mm256_set1_pd(6.93147180369123816490e-01), kLn2Lo = _mm256_set1_pd(1.90821492927058770002e-10);
  const __m256d shifted = _mm256_fmadd_pd(x, kLog2e, kRound), k = _mm256_sub_pd(shifted, kRound);
  __m256d r = _mm256_fnmadd_pd(k, kLn2Hi, x);
  r = _mm256_fnmadd_pd(k, kLn2Lo, r);
  constexpr double c[] = {1.0 / 479001600.0,
                          1.0 / 39916800.0,
                          1.0 / 3628800.0,
                          1.0 / 362880.0,
                          1.0 / 40320.0,
                          1.0 / 5040.0,
                          1.0 / 720.0,
                          1.0 / 120.0,
                          1.0 / 24.0,
                          1.0 / 6.0,
                          0.5};
  __m256d p = _mm256_set1_pd(1.0 / 6227020800.0);
#pragma GCC unroll 11
  for (double ci : c) p = _mm256_fmadd_pd(p, r, _mm256_set1_pd(ci));
  p = _mm256_add_pd(_mm256_fmadd_pd(p, _mm256_mul_pd(r, r), r), _mm256_set1_pd(1.0));
  const __m256i n = _mm256_sub_epi64(_mm256_castpd_si256(shifted), _mm256_castpd_si256(kRound));
  return _mm256_mul_pd(p, _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_add_epi64(n, _mm256_set1_epi64x(1023)), 52)));
}

[[gnu::target("avx2,fma")]] std::uint64_t masses_avx2(std::span<const float> logits, double temperature, double x_max,
                                                      std::uint64_t* masses) {
  const __m256d t = _mm256_set1_pd(temperature), top = _mm256_set1_pd(x_max), floor = _mm256_set1_pd(kMassFloor);
  const __m256d scale = _mm256_set1_pd(0x1p40), round = _mm256_set1_pd(0x1p52);
  const __m256i low = _mm256_set1_epi64x(0xFFFFFFFFFFFFFll);
  __m256i sum = _mm256_setzero_si256();
  std::size_t i = 0;
  for (; i + 4 <= logits.size(); i += 4) {
    const __m256d x = _mm256_sub_pd(_mm256_div_pd(_mm256_cvtps_pd(_mm_loadu_ps(&logits[i])), t), top);
    const __m256d above = _mm256_cmp_pd(x, floor, _CMP_GE_OQ);
    const __m256d e = exp4(_mm256_and_pd(x, above));
    __m256i m = _mm256_and_si256(_mm256_castpd_si256(_mm256_add_pd(_mm256_mul_pd(e, scale), round)), low);
    m = _mm256_and_si256(m, _mm256_castpd_si256(above));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(masses + i), m);
    sum = _mm256_add_epi64(sum, m);
  }
  alignas(32) std::uint64_t parts[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(parts), sum);
  return parts[0] + parts[1] + parts[2] + parts[3] + masses_plain(logits.subspan(i), temperature, x_max, masses + i);
}

}  // namespace

std::uint64_t softmax_masses(std::span<const float> logits, double temperature, double x_max, std::uint64_t* masses) {
  LOCKSTEP_CHECK(logits.size() < (std::size_t(1) << 23));  // the sum stays below 2^63
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return (avx2 ? masses_avx2 : masses_plain)(logits, temperature, x_max, masses);
}

}  // namespace lockstep::sampling
