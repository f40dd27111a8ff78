// Noise of a draw, a pure function of (seed, index of the drawn token, token id): a counter-based generator, so that it does not matter how
// many rows were verified, in what order, or beside whom. One source for host and device.
#pragma once
#include <bit>
#include <cstdint>

#include "base/exact_math.h"

namespace lockstep::sampling {

/// Finaliser of splitmix64.
inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

inline std::uint64_t splitmix64(std::uint64_t x) { return mix(x + 0x9E3779B97F4A7C15ull); }

/// The part of the key that all tokens of one draw share.
class NoiseKey {
 public:
  NoiseKey(std::uint64_t seed, std::uint64_t index) : key_(mix(splitmix64(seed) ^ (index * 0xD1B54A32D192ED03ull))) {}

  /// 64 keyed bits of a token; the noise is a function of them.
  std::uint64_t bits(std::int32_t token) const { return mix(key_ ^ std::uint64_t(std::uint32_t(token))); }

  /// u = ((bits >> 12) + 0.5) * 2^-52, exact, never 0 or 1.
  static double uniform(std::uint64_t bits) { return (double(bits >> 12) + 0.5) * 0x1p-52; }

  /// Gumbel noise -ln(-ln u), in about -3.61 .. 36.74.
  static double gumbel(std::uint64_t bits) { return -exact::log(-exact::log(uniform(bits))); }

  /// At least gumbel(bits), without a logarithm: with n leading ones in bits, 1 - u >= 2^-(n + 1), and -ln(-ln u) <= -ln(1 - u).
  static double gumbel_bound(std::uint64_t bits) {
    constexpr double kLn2Up = 0.693147181;  // above ln 2 by 4e-10, more than the logarithms can err by
    const int ones = std::countl_one(bits);
    return double((ones < 52 ? ones : 52) + 1) * kLn2Up;
  }

 private:
  std::uint64_t key_;
};

}  // namespace lockstep::sampling
