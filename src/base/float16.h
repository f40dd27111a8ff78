// IEEE half precision as its 16 bits. Widening is exact; narrowing rounds to nearest even and keeps denormals.
#pragma once
#include <bit>
#include <cstdint>

namespace lockstep {

inline float half_to_float(std::uint16_t h) {
  const std::uint32_t sign = std::uint32_t(h & 0x8000u) << 16, exponent = h >> 10 & 31u, mantissa = h & 1023u;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = float(mantissa) * 0x1p-24f;  // zero or denormal: an exact product
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

inline std::uint16_t float_to_half(float f) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(f), magnitude = u & 0x7fffffffu;
  const std::uint16_t sign = std::uint16_t(u >> 16 & 0x8000u);
  if (magnitude > 0x7f800000u) return sign | 0x7e00;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00;  // 65,520 and more round to infinity
  if (magnitude < 0x38800000u) {                       // below 2^-14: the sum rounds to a multiple of 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | std::uint16_t(std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u);
  }
  return sign | std::uint16_t((magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
}

}  // namespace lockstep
