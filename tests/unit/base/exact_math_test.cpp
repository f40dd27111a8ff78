// exp and log of base/exact_math.h against long double libm, on the ranges a draw and the rotary table use.
#include "base/exact_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace lockstep {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Distance in units of the last place of the result.
double ulps(double got, long double want) {
  const double around = double(want);
  const double ulp = std::nextafter(std::fabs(around), kInfinity) - std::fabs(around);
  return double(std::fabs((long double)(got)-want) / ulp);
}

TEST(ExactMath, ExpIsWithinTwoUlp) {
  std::mt19937_64 random(1);
  double worst = 0;
  for (auto [low, high] : {std::pair{-40.0, 0.0}, {-1.0, 1.0}, {-700.0, 709.0}}) {
    std::uniform_real_distribution<double> x(low, high);
    for (int i = 0; i < 200000; i++) {
      const double v = x(random);
      worst = std::max(worst, ulps(exact::exp(v), expl(v)));
    }
  }
  EXPECT_LT(worst, 2.0);
}

TEST(ExactMath, LogIsWithinTwoUlp) {
  std::mt19937_64 random(2);
  double worst = 0;
  for (auto [low, high] : {std::pair{0.0, 1.0}, {0.5, 2.0}, {0.99, 1.01}, {0.0, 1e9}}) {
    std::uniform_real_distribution<double> x(low, high);
    for (int i = 0; i < 200000; i++) {
      const double v = x(random);
      if (v > 0 && v != 1) worst = std::max(worst, ulps(exact::log(v), logl(v)));
    }
  }
  for (int e = -1000; e <= 1000; e++) {
    const double v = std::ldexp(1.2345, e);
    worst = std::max(worst, ulps(exact::log(v), logl(v)));
  }
  EXPECT_LT(worst, 2.0);
}

TEST(ExactMath, KnownValues) {
  EXPECT_EQ(exact::exp(0.0), 1.0);
  EXPECT_EQ(exact::exp(-0.0), 1.0);
  EXPECT_EQ(exact::exp(-kInfinity), 0.0);
  EXPECT_EQ(exact::exp(-1e300), 0.0);
  EXPECT_EQ(exact::exp(-709.0), 0.0);  // flushed, though libm has a denormal there
  EXPECT_EQ(exact::exp(kInfinity), kInfinity);
  EXPECT_EQ(exact::exp(710.0), kInfinity);
  EXPECT_LT(ulps(exact::exp(709.7827), expl(709.7827L)), 1e3);
  EXPECT_EQ(exact::log(1.0), 0.0);
  EXPECT_EQ(exact::log(0.0), -kInfinity);
  EXPECT_EQ(exact::log(-0.0), -kInfinity);
  EXPECT_EQ(exact::log(5e-324), -kInfinity);  // denormals are zeros
  EXPECT_EQ(exact::log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(exact::log(-1.0)));
  EXPECT_TRUE(std::isnan(exact::log(std::nan(""))));
  EXPECT_TRUE(std::isnan(exact::exp(std::nan(""))));
}

// The bits are part of the promise (a draw is the same on every build): a change of a step must be seen.
TEST(ExactMath, BitsStay) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  const auto take = [&hash](double v) { hash = (hash ^ std::bit_cast<std::uint64_t>(v)) * 0x100000001b3ull; };
  for (int i = 1; i <= 20000; i++) {
    take(exact::exp(-40.0 * i / 20001));
    take(exact::exp(700.0 * (i - 10000) / 10007));
    take(exact::log(i / 20001.0));
    take(exact::log(1e6 * i));
  }
  EXPECT_EQ(hash, 18431949680362371899ull);
}

}  // namespace
}  // namespace lockstep
