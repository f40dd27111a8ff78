#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "naive_sampler.h"
#include "sampling/keyed_noise.h"

namespace lockstep::sampling {
namespace {

class Draws : public ::testing::Test {
 protected:
  Draws() { RecordProperty("seed", std::to_string(seed_)); }

  std::vector<float> normal(std::size_t n, float spread) {
    std::normal_distribution<float> distribution(0, spread);
    std::vector<float> logits(n);
    for (float& x : logits) x = distribution(random_);
    return logits;
  }
  void expect_equal(std::span<const float> logits, const SamplingParams& params, TokenMask mask = {}) {
    const std::uint64_t index = random_() % 100000;
    const NaiveDraw wanted = naive_draw(logits, params, index, mask);
    EXPECT_EQ(sampler_.draw(logits, params, index, {}, mask), wanted.token)
        << "n " << logits.size() << " T " << params.temperature << " k " << params.top_k << " p " << params.top_p << " min_p "
        << params.min_p << " seed " << params.seed << " index " << index << " run " << seed_;
  }
  SamplingParams random_params() {
    const double temperatures[] = {0, 0.01, 0.3, 0.7, 1, 1.5, 10};
    const int ks[] = {0, 0, 1, 2, 5, 20, 127, 128, 129, 1000, 100000};
    const double ps[] = {1, 1, 0.999999, 0.95, 0.8, 0.5, 0.1, 1e-9}, mins[] = {0, 0, 0, 1e-6, 0.05, 0.5, 1};
    return {temperatures[random_() % std::size(temperatures)], ks[random_() % std::size(ks)], ps[random_() % std::size(ps)],
            mins[random_() % std::size(mins)], random_()};
  }

  std::uint64_t seed_ = std::random_device()();
  std::mt19937_64 random_{seed_};
  Sampler sampler_{300000};
};

TEST_F(Draws, EqualTheNaiveDrawOnRandomRows) {
  for (int i = 0; i < 3000; i++) {
    const std::size_t n = 1 + random_() % (i % 10 == 0 ? 20000 : 700);
    auto logits = normal(n, float(random_() % 100) / 10.0f);
    if (i % 3 == 0)  // coarse steps: many ties
      for (float& x : logits) x = std::round(x);
    expect_equal(logits, random_params());
  }
}

TEST_F(Draws, EqualTheNaiveDrawOnHostileRows) {
  std::vector<std::vector<float>> rows;
  rows.push_back(std::vector<float>(5000, 1.25f));        // all equal
  rows.push_back({3.0f});                                 // one token
  rows.push_back({-0.0f, 0.0f, -0.0f, 0.0f});             // signed zeros are one logit
  rows.push_back({-1e30f, 1e30f, 1e30f, -3e38f, 3e38f});  // the ends of f32
  rows.push_back({1e-40f, 2e-40f, 0.0f, -1e-40f});        // denormals
  std::vector<float> rising(3000), falling(3000), steep(3000), two(3000, -20.0f);
  for (int i = 0; i < 3000; i++) {
    rising[std::size_t(i)] = float(i) * 0.001f;
    falling[std::size_t(i)] = -float(i) * 0.001f;
    steep[std::size_t(i)] = float(i * 7919 % 3000) * 0.02f;  // spans more than the mass floor
  }
  two[17] = two[2900] = 5.0f;
  rows.insert(rows.end(), {rising, falling, steep, two});
  for (const auto& row : rows)
    for (int i = 0; i < 300; i++) expect_equal(row, random_params());
}

TEST_F(Draws, EqualTheNaiveDrawOnALargeVocabulary) {
  for (int i = 0; i < 4; i++) {
    const auto logits = normal(248077, 2.0f + float(i));
    const SamplingParams sets[] = {{0, 0, 1, 0, random_()},      {1, 0, 1, 0, random_()},      {0.7, 20, 0.8, 0, random_()},
                                   {1, 0, 0.95, 0, random_()},   {1, 0, 0.9999, 0, random_()}, {2, 0, 1, 0.01, random_()},
                                   {1, 5000, 0.9, 0, random_()}, {8, 0, 0.5, 0, random_()}};
    for (const auto& params : sets) expect_equal(logits, params);
  }
}

TEST_F(Draws, MaskedRowsEqualTheNaiveDraw) {
  for (int i = 0; i < 500; i++) {
    const std::size_t n = 1 + random_() % 3000;
    auto logits = normal(n, 3);
    if (i % 2 == 0)
      for (float& x : logits) x = std::round(x);
    std::vector<std::uint32_t> mask((n + 31) / 32 - (n > 64 && i % 5 == 0 ? 1 : 0));  // a mask may end early, or say more than there is
    for (auto& word : mask) word = std::uint32_t(random_()) & (i % 3 == 0 ? std::uint32_t(random_() & random_() & random_()) : ~0u);
    mask[0] |= 1;
    if (i % 7 == 0) mask.push_back(~0u);
    expect_equal(logits, random_params(), mask);
  }
}

TEST_F(Draws, GreedyTakesTheLowestIdOfTheLargestLogit) {
  for (std::size_t first : {std::size_t(0), std::size_t(1), std::size_t(127), std::size_t(128), std::size_t(129), std::size_t(998)}) {
    std::vector<float> logits(1000, -1.0f);
    for (std::size_t i = first; i < logits.size(); i += 1 + first % 7) logits[i] = 2.5f;
    for (double t : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()})
      EXPECT_EQ(sampler_.draw(logits, {t, 0, 1, 0, 1}, 5, {}), std::int32_t(first));
    EXPECT_EQ(sampler_.draw(logits, {1, 1, 1, 0, 1}, 5, {}), std::int32_t(first));
    EXPECT_EQ(sampler_.draw(logits, {1e-320, 0, 1, 0, 1}, 5, {}), std::int32_t(first));  // x overflows
    for (double t : {1.0, 1e-30, 1e-40}) EXPECT_EQ(sampler_.draw(logits, {t, 0, 0, 0, 1}, 5, {}), std::int32_t(first));  // top_p 0
  }
}

TEST_F(Draws, EqualScoresGoToTheLowestId) {
  // x is so large that adding noise does not change it: all scores are equal.
  std::vector<float> logits(100, 1e30f);
  logits[3] = 0;
  for (std::uint64_t seed = 0; seed < 50; seed++) EXPECT_EQ(sampler_.draw(logits, {1e-20, 0, 1, 0, seed}, 1, {}), 0);
  logits[0] = 0;
  EXPECT_EQ(sampler_.draw(logits, {1e-20, 0, 1, 0, 1}, 1, {}), 1);
  EXPECT_EQ(sampler_.draw(logits, {1e-20, 90, 0.9, 0, 1}, 1, {}), 1);
}

/// Ids that a draw can give, over many seeds.
std::vector<bool> reachable(Sampler& sampler, std::span<const float> logits, SamplingParams params, int seeds) {
  std::vector<bool> seen(logits.size());
  for (int i = 0; i < seeds; i++) {
    params.seed = std::uint64_t(i);
    seen[std::size_t(sampler.draw(logits, params, 3, {}))] = true;
  }
  return seen;
}

TEST_F(Draws, TopPAtABorderKeepsTheShortestPrefixThatReachesIt) {
  // Four equal masses of 2^40: a quarter each, and quarters are exact, so that the border is met with equality.
  const std::vector<float> logits(4, 0.0f);
  using Ids = std::vector<bool>;
  EXPECT_EQ(reachable(sampler_, logits, {1, 0, 0.5, 0, 0}, 200), (Ids{true, true, false, false}));
  EXPECT_EQ(reachable(sampler_, logits, {1, 0, std::nextafter(0.5, 1), 0, 0}, 200), (Ids{true, true, true, false}));
  EXPECT_EQ(reachable(sampler_, logits, {1, 0, std::nextafter(0.5, 0), 0, 0}, 200), (Ids{true, true, false, false}));
  EXPECT_EQ(reachable(sampler_, logits, {1, 0, 0.25, 0, 0}, 200), (Ids{true, false, false, false}));
  EXPECT_EQ(reachable(sampler_, logits, {1, 0, 0, 0, 0}, 200), (Ids{true, false, false, false}));
  // The total is what top_k left: half of two is one.
  EXPECT_EQ(reachable(sampler_, logits, {1, 2, 0.5, 0, 0}, 200), (Ids{true, false, false, false}));
  EXPECT_EQ(reachable(sampler_, logits, {1, 2, 0.51, 0, 0}, 200), (Ids{true, true, false, false}));
}

TEST_F(Draws, TopKTiesGoToTheLowestIds) {
  const std::vector<float> logits{1, 2, 2, 2, 1};
  EXPECT_EQ(reachable(sampler_, logits, {1, 2, 1, 0, 0}, 200), (std::vector<bool>{false, true, true, false, false}));
  EXPECT_EQ(reachable(sampler_, logits, {1, 4, 1, 0, 0}, 500), (std::vector<bool>{true, true, true, true, false}));
}

TEST_F(Draws, MinPKeepsTheBorder) {
  const float below = float(exact::log(0.5));  // f32 rounds ln(1/2) up or down: one step each way is on a known side
  const std::vector<float> logits{0, std::nextafter(below, 0.0f), std::nextafter(below, -1.0f)};
  EXPECT_EQ(reachable(sampler_, logits, {1, 0, 1, 0.5, 0}, 300), (std::vector<bool>{true, true, false}));
  const std::vector<float> ties{0, 0, -1e-3f};
  EXPECT_EQ(reachable(sampler_, ties, {1, 0, 1, 1, 0}, 100), (std::vector<bool>{true, true, false}));
  EXPECT_EQ(reachable(sampler_, ties, {1, 0, 1, 7, 0}, 100), (std::vector<bool>{true, false, false}));  // the first is always kept
}

TEST_F(Draws, TopPMetExactlyAtALogitBorder) {
  const std::vector<float> logits{0, 0, -1, -1, -2};
  std::uint64_t total = 0;
  for (float x : logits) total += std::uint64_t(std::nearbyint(exact::exp(double(x)) * 1099511627776.0));
  double p = 0x1p41 / double(total);  // the two first reach it with equality, where the product is exact
  for (int i = 0; i < 4 && p * double(total) != 0x1p41; i++) p = std::nextafter(p, p * double(total) < 0x1p41 ? 1.0 : 0.0);
  ASSERT_EQ(p * double(total), 0x1p41);
  EXPECT_EQ(reachable(sampler_, logits, {1, 0, p, 0, 0}, 300), (std::vector<bool>{true, true, false, false, false}));
  EXPECT_EQ(reachable(sampler_, logits, {1, 0, std::nextafter(p, 1.0), 0, 0}, 300), (std::vector<bool>{true, true, true, false, false}));
}

/// The hash is a bijection, so that a seed can be made that gives one token any bits.
std::uint64_t seed_with_bits(std::uint64_t bits, std::uint64_t index, std::int32_t token) {
  const auto unshift = [](std::uint64_t y, int shift) {
    std::uint64_t x = y;
    for (int i = shift; i < 64; i += shift) x = y ^ (x >> shift);
    return x;
  };
  const auto inverse = [](std::uint64_t odd) {
    std::uint64_t x = odd;
    for (int i = 0; i < 6; i++) x *= 2 - odd * x;
    return x;
  };
  const auto unmix = [&](std::uint64_t x) {
    x = unshift(x, 31) * inverse(0x94D049BB133111EBull);
    x = unshift(x, 27) * inverse(0xBF58476D1CE4E5B9ull);
    return unshift(x, 30);
  };
  const std::uint64_t key = unmix(bits) ^ std::uint64_t(token);
  return unmix(unmix(key) ^ (index * 0xD1B54A32D192ED03ull)) - 0x9E3779B97F4A7C15ull;
}

// With the largest noise there is (36.74): a token of mass 1 wins from the very floor, one of mass 0 never.
TEST_F(Draws, MassZeroIsNeverKept) {
  std::vector<float> logits(500, -100.0f);
  logits[7] = 0;
  for (std::int32_t token : {0, 8, 130, 499}) {
    const SamplingParams params{1, 0, 1, 0, seed_with_bits(~0ull, 4, token)};
    ASSERT_GT(keyed_noise(params.seed, 4, token), 36.7);
    ASSERT_LT(keyed_noise(params.seed, 4, 7), 8);
    auto row = logits;
    row[std::size_t(token)] = -28.40f;
    EXPECT_EQ(sampler_.draw(row, params, 4, {}), token);
    EXPECT_EQ(naive_draw(row, params, 4).token, token);
    row[std::size_t(token)] = -28.45f;
    EXPECT_EQ(sampler_.draw(row, params, 4, {}), 7);
    EXPECT_EQ(naive_draw(row, params, 4).token, 7);
  }
}

// The same against a first token with nearly as much noise as can be beaten: passing over blocks a little too early would lose the winner.
TEST_F(Draws, TheLargestNoiseWinsFromTheFloor) {
  const SamplingParams params{1, 0, 1, 0, seed_with_bits(~0ull, 4, 12345)};
  std::vector<float> logits(100000, -100.0f);
  logits[12345] = -28.40f;
  int tried = 0;
  for (std::int32_t first = 0; first < 100000; first++) {
    const double noise = keyed_noise(params.seed, 4, first);
    if (noise < 7.7 || noise > 8.3) continue;
    logits[std::size_t(first)] = 0;
    EXPECT_EQ(sampler_.draw(logits, params, 4, {}), 12345);
    logits[std::size_t(first)] = -100.0f;
    tried++;
  }
  EXPECT_GT(tried, 0);
}

TEST_F(Draws, FrequenciesFollowTheSoftmax) {
  const std::vector<float> logits{0, 1, 2, 3};
  double wanted[4], total = 0;
  for (int i = 0; i < 4; i++) total += wanted[i] = std::exp(double(i) / 1.3);
  int counts[4] = {};
  constexpr int n = 40000;
  for (int i = 0; i < n; i++) counts[sampler_.draw(logits, {1.3, 0, 1, 0, 5}, std::uint64_t(i), {})]++;
  for (int i = 0; i < 4; i++) {
    const double p = wanted[i] / total;
    EXPECT_NEAR(counts[i], n * p, 5 * std::sqrt(n * p * (1 - p)));
  }
}

TEST_F(Draws, DependOnNothingBefore) {
  const auto logits = normal(5000, 2), other = normal(20000, 5);
  const SamplingParams params{0.9, 40, 0.95, 0.01, 77};
  const std::int32_t fresh = Sampler(5000).draw(logits, params, 12, {});
  for (int i = 0; i < 20; i++) {
    sampler_.draw(other, random_params(), random_(), {});
    EXPECT_EQ(sampler_.draw(logits, params, 12, {}), fresh);
  }
}

// Planted faults: what the comparison above must catch. Each is the naive draw with one rule bent; if no row told them apart, the
// comparison would prove nothing.
TEST_F(Draws, BentRulesAreCaught) {
  int lost_tie = 0, wrong_index = 0, top_p_of_all = 0;
  for (int i = 0; i < 2000; i++) {
    auto logits = normal(200, 1);
    for (float& x : logits) x = std::round(x);
    SamplingParams params{1, 30, 0.6, 0, random_()};
    const std::int32_t token = sampler_.draw(logits, params, 9, {});
    wrong_index += naive_draw(logits, params, 10).token != token;
    SamplingParams bent = params;
    bent.top_k = 0;  // total of everything, not of what top_k left
    const auto all = naive_draw(logits, bent, 9), right = naive_draw(logits, params, 9);
    top_p_of_all += all.kept.size() != right.kept.size() && all.token != token;
    std::vector<float> reversed(logits.rbegin(), logits.rend());  // ties to the highest id
    lost_tie += 199 - sampler_.draw(reversed, {0, 0, 1, 0, 0}, 9, {}) != sampler_.draw(logits, {0, 0, 1, 0, 0}, 9, {});
  }
  EXPECT_GT(lost_tie, 0);
  EXPECT_GT(wrong_index, 0);
  EXPECT_GT(top_p_of_all, 0);
}

}  // namespace
}  // namespace lockstep::sampling
