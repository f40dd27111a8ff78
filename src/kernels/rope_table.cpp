// float64 in explicit fused steps (EXACTNESS item 7): the same bits from the instruction and, where a chip has none, from the library.
#include "kernels/rope_table.h"

#include <bit>
#include <cmath>

#include "base/exact_math.h"

namespace lockstep::kernels {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kTwoOverPi = 0.63661977236758134308;
// pi / 2 in three parts: the first two have 33 bits, so that a multiple of up to 2^20 is exact (fdlibm's split).
constexpr double kHalfPi1 = 1.57079632673412561417e+00, kHalfPi2 = 6.07710050630396597660e-11, kHalfPi3 = 2.02226624871116645580e-21;
constexpr double kRoundToInteger = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer and leaves that in the low bits

/// sin and cos of n angles in [0, 2^20). |r| <= pi / 4 after the reduction; the first Taylor terms left out are below 7e-12 (sin) and
/// 4e-13 (cos), so each result is its exact value, off by less than 1e-11, rounded once to f32.
[[gnu::always_inline]] inline void sin_cos_body(const float* angle, int n, float* sin, float* cos) {
  for (int i = 0; i < n; i++) {
    const double x = angle[i], t = std::fma(x, kTwoOverPi, kRoundToInteger), k = t - kRoundToInteger;
    const double r = std::fma(-k, kHalfPi3, std::fma(-k, kHalfPi2, std::fma(-k, kHalfPi1, x))), z = r * r;
    double s = -1.0 / 39916800.0;
    s = std::fma(s, z, 1.0 / 362880.0);
    s = std::fma(s, z, -1.0 / 5040.0);
    s = std::fma(s, z, 1.0 / 120.0);
    s = std::fma(s, z, -1.0 / 6.0);
    s = std::fma(s, z * r, r);
    double c = 1.0 / 479001600.0;
    c = std::fma(c, z, -1.0 / 3628800.0);
    c = std::fma(c, z, 1.0 / 40320.0);
    c = std::fma(c, z, -1.0 / 720.0);
    c = std::fma(c, z, 1.0 / 24.0);
    c = std::fma(c, z, -0.5);
    c = std::fma(c, z, 1.0);
    // Quadrant q: (sin, cos) is (s, c), (c, -s), (-s, -c), (-c, s).
    const std::uint64_t q = std::bit_cast<std::uint64_t>(t), swap = 0 - (q & 1);
    const std::uint64_t bs = std::bit_cast<std::uint64_t>(s), bc = std::bit_cast<std::uint64_t>(c), both = (bs ^ bc) & swap;
    sin[i] = float(std::bit_cast<double>((bs ^ both) ^ (q & 2) << 62));
    cos[i] = float(std::bit_cast<double>((bc ^ both) ^ ((q + 1) & 2) << 62));
  }
}
void sin_cos_plain(const float* angle, int n, float* sin, float* cos) { sin_cos_body(angle, n, sin, cos); }
#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void sin_cos_fma(const float* angle, int n, float* sin, float* cos) { sin_cos_body(angle, n, sin, cos); }
#endif

using SinCos = void (*)(const float*, int, float*, float*);
SinCos choose_sin_cos([[maybe_unused]] bool fma_instruction) {
#if defined(__x86_64__)
  if (fma_instruction && __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2")) return sin_cos_fma;
#endif
  return sin_cos_plain;
}

}  // namespace

std::vector<float> rope_inverse_frequencies(int rotary_dim, double theta, const RopeScaling& scaling) {
  std::vector<float> inverse(std::size_t(rotary_dim / 2));
  const double log_theta = exact::log(theta);
  for (int j = 0; j < rotary_dim / 2; j++) {
    double f = exact::exp(-2.0 * j / rotary_dim * log_theta);
    if (scaling.type == RopeScaling::Type::kLinear) f /= scaling.factor;
    if (scaling.type == RopeScaling::Type::kLlama3) {  // as published with Llama 3.1
      const double wavelength = 2 * kPi / f, original = scaling.original_max_position_embeddings;
      if (wavelength > original / scaling.low_freq_factor) {
        f /= scaling.factor;
      } else if (wavelength >= original / scaling.high_freq_factor) {
        const double s = (original / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
        f = (1 - s) * (f / scaling.factor) + s * f;
      }
    }
    inverse[std::size_t(j)] = float(f);
  }
  return inverse;
}

RopeTable make_rope_table(int rotary_dim, double theta, const RopeScaling& scaling, std::int64_t positions, bool fma_instruction) {
  const std::vector<float> inverse = rope_inverse_frequencies(rotary_dim, theta, scaling);
  const int half = rotary_dim / 2;
  RopeTable table;
  table.rotary_dim = rotary_dim;
  table.positions = positions;
  table.cos.resize(std::size_t(positions) * std::size_t(half));
  table.sin.resize(table.cos.size());
  std::vector<float> angle(static_cast<std::size_t>(half));
  const SinCos sin_cos = choose_sin_cos(fma_instruction);
  for (std::int64_t p = 0; p < positions; p++) {
    for (int j = 0; j < half; j++) angle[std::size_t(j)] = float(p) * inverse[std::size_t(j)];
    sin_cos(angle.data(), half, table.sin.data() + p * half, table.cos.data() + p * half);
  }
  return table;
}

}  // namespace lockstep::kernels
