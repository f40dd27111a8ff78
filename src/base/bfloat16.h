// bfloat16 as its 16 bits, and EXACTNESS item 1's store: round to nearest even; NaN becomes 0x7fc0; magnitudes below 2^-126
// become zero of their sign (as VCVTNEPS2BF16 does).
#pragma once
#include <bit>
#include <cstdint>

namespace lockstep {

using bf16 = std::uint16_t;

inline float to_float(bf16 h) { return std::bit_cast<float>(std::uint32_t(h) << 16); }
inline bf16 to_bf16(float f) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(f), magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fc0;
  if (magnitude < 0x00800000u) return bf16(u >> 16 & 0x8000u);
  return bf16((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

}  // namespace lockstep
