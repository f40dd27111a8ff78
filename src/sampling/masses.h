// Softmax masses as integers: a sum of them has no order, so neither threads, tiles nor a partial read can change where a cut falls.
#pragma once
#include <bit>
#include <cstdint>
#include <span>

#include "base/exact_math.h"

namespace lockstep::sampling {

/// x below this has mass 0 for certain: exp(x) * 2^40 < 1/2.
inline constexpr double kMassFloor = -28.5;

/// round(exp(x) * 2^40), half to even, for x = (logit - largest logit) / T <= 0.
inline std::uint64_t mass(double x) {
  if (!(x >= kMassFloor)) return 0;
  // Adding 2^52 leaves the rounded integer in the low bits.
  return std::bit_cast<std::uint64_t>(exact::exp(x) * 0x1p40 + 0x1p52) & 0xFFFFFFFFFFFFFull;
}

/// masses[i] = mass(logits[i] / temperature - x_max); returns their sum (fewer than 2^23 logits). The same bits on every
/// machine; AVX2 is used where the chip has it.
std::uint64_t softmax_masses(std::span<const float> logits, double temperature, double x_max, std::uint64_t* masses);

}  // namespace lockstep::sampling
