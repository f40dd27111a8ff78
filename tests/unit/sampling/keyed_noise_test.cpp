#include "sampling/keyed_noise.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sampling/masses.h"
#include "sampling/sampler.h"

namespace lockstep::sampling {
namespace {

// Known answers, computed apart from this code: integers exactly, the logarithm's steps in rational arithmetic rounded once each; the
// values agree with -ln(-ln u) in 60 decimal digits to a relative 6e-16.
TEST(KeyedNoise, KnownAnswers) {
  struct Row {
    std::uint64_t seed, index;
    std::int32_t token;
    std::uint64_t bits;
    double noise;
  };
  const Row rows[] = {
      {0x0000000000000000ull, 0ull, 0, 0x33FE8BD4F9C57863ull, -0x1.dd76ce2674386p-2},
      {0x0000000000000000ull, 1ull, 0, 0xF53673D646F5B4FBull, 0x1.929b2745b26f3p+1},
      {0x0000000000000001ull, 0ull, 0, 0x0A385EF24FA6A992ull, -0x1.2b6d16d467e7fp+0},
      {0x0000000000000000ull, 0ull, 1, 0x2AEA2EC8299DF491ull, -0x1.28f0185ca5e8ap-1},
      {0x000000000000002Aull, 7ull, 1000, 0xD67DAF1246001BF1ull, 0x1.bb6be00eb1b0cp+0},
      {0x000000000000002Aull, 8ull, 1000, 0x362C673BBBD3FFC1ull, -0x1.c2be81f7c9448p-2},
      {0x000000000000002Aull, 7ull, 1001, 0xE627F5A0BC4F522Aull, 0x1.1ec443ab78f4cp+1},
      {0xFFFFFFFFFFFFFFFFull, 9223372036854775808ull, 248076, 0xC1622E84716DA8DFull, 0x1.456babfbe8086p+0},
      {0x0123456789ABCDEFull, 32767ull, 8008, 0x5047EAE056706943ull, -0x1.2f568497a1c00p-3},
      {0x0000000000000003ull, 5ull, 2147483647, 0x71FB23FA78B93F61ull, 0x1.b1b7e0bb7d2b3p-3},
      {0x0000000000000007ull, 100ull, 50, 0xD9C5301752C4CD1Dull, 0x1.d260831ae3f50p+0},
      {0x00000000075BCD15ull, 2048ull, 131071, 0x7B5C23C0A73B4449ull, 0x1.4229f96e5ae27p-2},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(NoiseKey(row.seed, row.index).bits(row.token), row.bits);
    EXPECT_EQ(keyed_noise(row.seed, row.index, row.token), row.noise) << row.seed << " " << row.index << " " << row.token;
  }
}

TEST(KeyedNoise, SeedsOfChoices) {
  EXPECT_EQ(choice_seed(42, 0), 42u);
  EXPECT_EQ(choice_seed(0, 1), 0x910a2dec89025cc1ull);
  EXPECT_EQ(choice_seed(42, 1), 0xba69ec90eb4fef88ull);
  EXPECT_EQ(choice_seed(42, 2), 0xfb452912299a5453ull);
  EXPECT_EQ(choice_seed(~0ull, 1), 0xe220a8397b1dcdafull);  // splitmix64(0), the published first number of seed 0
}

// The two ends of u, and the bound that lets a draw pass over tokens: it must never be below the noise, or a winner would be lost.
TEST(KeyedNoise, BoundHoldsAtTheEndsAndAtRandom) {
  EXPECT_EQ(NoiseKey::uniform(0), 0x1p-53);
  EXPECT_EQ(NoiseKey::uniform(~0ull), 1 - 0x1p-53);
  EXPECT_NEAR(NoiseKey::gumbel(~0ull), 36.7368005696771, 1e-12);
  EXPECT_NEAR(NoiseKey::gumbel(0), -3.60374, 1e-4);
  for (int ones = 0; ones <= 64; ones++) {  // just above a step of the bound, just below it
    const std::uint64_t high = ones == 0 ? 0 : ~0ull << (64 - ones);
    for (std::uint64_t bits : {high, high | (~high >> 1), high + 1, high - 1, high | 0xfff, ~high})
      EXPECT_GE(NoiseKey::gumbel_bound(bits), NoiseKey::gumbel(bits)) << ones;
  }
  std::uint64_t x = 1;
  for (int i = 0; i < 200000; i++) {
    x = splitmix64(x);
    ASSERT_GE(NoiseKey::gumbel_bound(x), NoiseKey::gumbel(x));
  }
}

TEST(KeyedNoise, IsGumbelDistributed) {
  double sum = 0, squares = 0;
  constexpr int n = 200000;
  for (int i = 0; i < n; i++) {
    const double g = keyed_noise(9, std::uint64_t(i / 1000), i % 1000);
    sum += g;
    squares += g * g;
  }
  const double mean = sum / n, variance = squares / n - mean * mean;
  EXPECT_NEAR(mean, 0.5772156649, 5 * 1.2825 / std::sqrt(n));  // Euler's constant, five standard errors
  EXPECT_NEAR(variance, 1.6449340668, 0.05);                   // pi^2 / 6
}

// The vector loop gives the one-by-one definition's integers, at lengths that leave a remainder.
TEST(Masses, LoopEqualsDefinition) {
  std::vector<float> logits;
  std::uint64_t x = 7;
  for (int i = 0; i < 100003; i++) {
    x = splitmix64(x);
    logits.push_back(float(-32.0 * double(x >> 11) * 0x1p-53));
  }
  logits[0] = 0;
  for (double t : {1.0, 0.7, 0.031, 3.0}) {
    std::vector<std::uint64_t> masses(logits.size());
    const std::uint64_t total = softmax_masses(logits, t, 0, masses.data());
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < logits.size(); i++) {
      const double v = double(logits[i]) / t;
      const std::uint64_t wanted = std::uint64_t(std::nearbyint(exact::exp(v) * 1099511627776.0));
      ASSERT_EQ(masses[i], wanted) << logits[i] << " at " << t;
      sum += wanted;
    }
    EXPECT_EQ(total, sum);
  }
  EXPECT_EQ(mass(0), std::uint64_t(1) << 40);
  EXPECT_EQ(mass(kMassFloor), 0u);
  EXPECT_EQ(mass(-28.4), 1u);
  EXPECT_EQ(mass(-1000), 0u);
  EXPECT_EQ(mass(std::numeric_limits<double>::quiet_NaN()), 0u);
}

}  // namespace
}  // namespace lockstep::sampling
