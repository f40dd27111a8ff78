#include "sampling/sampler.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>

#include "base/check.h"
#include "base/exact_math.h"
#include "sampling/keyed_noise.h"
#include "sampling/masses.h"

namespace lockstep::sampling {
namespace {

constexpr std::size_t kBlock = 128;  // logits whose maximum is kept, so that whole blocks can be passed over

/// Larger key: earlier in the order of candidates. -0 and 0 are one logit.
std::uint64_t order_key(float logit, std::int32_t id) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(logit + 0.0f);
  const std::uint32_t ordered = u & 0x80000000u ? ~u : u | 0x80000000u;
  return std::uint64_t(ordered) << 32 | std::uint32_t(~std::uint32_t(id));
}
std::int32_t key_id(std::uint64_t key) { return std::int32_t(~std::uint32_t(key)); }
float key_logit(std::uint64_t key) {
  const std::uint32_t ordered = std::uint32_t(key >> 32);
  return std::bit_cast<float>(ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered);
}

/// Largest of up to kBlock logits; which of equal values, or of 0 and -0, comes out does not matter to any caller.
float block_maximum(const float* x, std::size_t n) {
  if (n < kBlock) return *std::max_element(x, x + n);
  __m128 best[4];
  for (std::size_t j = 0; j < 4; j++) best[j] = _mm_loadu_ps(x + 4 * j);
  for (std::size_t i = 16; i < kBlock; i += 16)
    for (std::size_t j = 0; j < 4; j++) best[j] = _mm_max_ps(best[j], _mm_loadu_ps(x + i + 4 * j));
  alignas(16) float lanes[4];
  _mm_store_ps(lanes, _mm_max_ps(_mm_max_ps(best[0], best[1]), _mm_max_ps(best[2], best[3])));
  return std::max(std::max(lanes[0], lanes[1]), std::max(lanes[2], lanes[3]));
}

/// The Gumbel-max race of the candidates that the cuts leave in. The first of the order is always in.
class Race {
 public:
  Race(const SamplingParams& params, std::uint64_t index, float first_logit, std::int32_t first)
      : noise_(params.seed, index), temperature_(params.temperature), x_max_(double(first_logit) / params.temperature), winner_(first) {
    if (params.min_p > 0) floor_ = std::max(floor_, exact::log(params.min_p));
    score_ = x_max_ + NoiseKey::gumbel(noise_.bits(first));
  }

  void offer(float logit, std::int32_t id) {
    const double x = double(logit) / temperature_;
    if (x - x_max_ < floor_) return;
    const std::uint64_t bits = noise_.bits(id);
    if (x + NoiseKey::gumbel_bound(bits) < score_) return;
    const double score = x + NoiseKey::gumbel(bits);
    if (score < score_ || (score == score_ && id > winner_)) return;
    if (mass(x - x_max_) == 0) return;
    score_ = score;
    winner_ = id;
  }

  /// False when no candidate with a logit of at most this can win.
  bool can_win(float logit) const {
    constexpr double kNoiseMax = 37;
    const double x = double(logit) / temperature_;
    return x - x_max_ >= floor_ && x + kNoiseMax >= score_;
  }

  std::int32_t winner() const { return winner_; }

 private:
  NoiseKey noise_;
  double temperature_, x_max_, floor_ = kMassFloor, score_;
  std::int32_t winner_;
};

}  // namespace

Sampler::Sampler(std::int64_t vocabulary) {
  const std::size_t n = std::size_t(vocabulary), blocks = (n + kBlock - 1) / kBlock;
  block_maxima_.resize(blocks);
  sorted_maxima_.resize(blocks);
  allowed_logits_.resize(n);
  allowed_ids_.resize(n);
  masses_.resize(n);
  bin_of_.resize(n);
  candidates_.resize(n);
  kept_logits_.reserve(n);
  kept_ids_.reserve(n);
}

std::int32_t Sampler::draw(std::span<const float> logits, const SamplingParams& params, std::uint64_t index,
                           std::span<const std::int32_t> /*history: penalties*/, TokenMask mask) {
  LOCKSTEP_CHECK(!logits.empty() && logits.size() <= masses_.size());
  const Row row = allowed(logits, mask);
  const std::size_t top = first_largest(row.logits);
  const std::int32_t top_id = row.id(top);
  const float top_logit = row.logits[top];
  if (!(params.temperature > 0) || params.top_k == 1 || !(params.top_p > 0)) return top_id;
  if (!std::isfinite(double(top_logit) / params.temperature)) return top_id;

  // Both cuts keep a prefix of the order: everything down to one key.
  std::uint64_t last_kept = 0;
  Row left = row;
  if (params.top_k > 0 && std::size_t(params.top_k) < row.logits.size()) {
    last_kept = cut_top_k(row, std::size_t(params.top_k));
    left = {kept_logits_, kept_ids_.data()};
  }
  if (params.top_p < 1) last_kept = cut_top_p(left, params, top_logit);

  Race race(params, index, top_logit, top_id);
  const float last_logit = last_kept ? key_logit(last_kept) : -std::numeric_limits<float>::infinity();
  for (std::size_t begin = 0; begin < row.logits.size(); begin += kBlock) {
    const float largest = block_maxima_[begin / kBlock];
    if (largest < last_logit || !race.can_win(largest)) continue;
    const std::size_t end = std::min(begin + kBlock, row.logits.size());
    for (std::size_t i = begin; i < end; i++) {
      const float logit = row.logits[i];
      if (logit > last_logit || (logit == last_logit && order_key(logit, row.id(i)) >= last_kept)) race.offer(logit, row.id(i));
    }
  }
  return race.winner();
}

/// The row itself, or its allowed tokens copied together.
Sampler::Row Sampler::allowed(std::span<const float> logits, TokenMask mask) {
  if (mask.empty()) return {logits, nullptr};
  std::size_t n = 0;
  for (std::size_t word = 0; word < mask.size() && word * 32 < logits.size(); word++)
    for (std::uint32_t bits = mask[word]; bits != 0; bits &= bits - 1) {
      const std::size_t id = word * 32 + std::size_t(std::countr_zero(bits));
      if (id >= logits.size()) break;
      allowed_ids_[n] = std::int32_t(id);
      allowed_logits_[n++] = logits[id];
    }
  LOCKSTEP_CHECK(n > 0);  // a grammar always allows a token: the end of the reply
  return {std::span<const float>(allowed_logits_).first(n), allowed_ids_.data()};
}

/// Index of the first of the largest logits; leaves the maximum of every block in block_maxima_.
std::size_t Sampler::first_largest(std::span<const float> logits) {
  std::size_t best_block = 0;
  for (std::size_t block = 0, begin = 0; begin < logits.size(); block++, begin += kBlock) {
    block_maxima_[block] = block_maximum(logits.data() + begin, std::min(kBlock, logits.size() - begin));
    if (block_maxima_[block] > block_maxima_[best_block]) best_block = block;
  }
  std::size_t i = best_block * kBlock;
  while (logits[i] < block_maxima_[best_block]) i++;
  return i;
}

/// Key of the k-th candidate; the first k are left in kept_logits_ and kept_ids_, in no order. The k-th largest block maximum is at most
/// the k-th largest logit, so that only blocks that reach it are looked into. Uses block_maxima_ of `row`.
std::uint64_t Sampler::cut_top_k(const Row& row, std::size_t k) {
  const std::size_t blocks = (row.logits.size() + kBlock - 1) / kBlock;
  float threshold = -std::numeric_limits<float>::infinity();
  if (k <= blocks) {
    std::copy_n(block_maxima_.begin(), blocks, sorted_maxima_.begin());
    const auto kth = sorted_maxima_.begin() + std::ptrdiff_t(k - 1);
    std::nth_element(sorted_maxima_.begin(), kth, sorted_maxima_.begin() + std::ptrdiff_t(blocks), std::greater<>());
    threshold = *kth;
  }
  std::size_t n = 0;
  for (std::size_t block = 0; block < blocks; block++) {
    if (block_maxima_[block] < threshold) continue;
    const std::size_t end = std::min((block + 1) * kBlock, row.logits.size());
    for (std::size_t i = block * kBlock; i < end; i++)
      if (row.logits[i] >= threshold) candidates_[n++] = {order_key(row.logits[i], row.id(i)), 0};
  }
  LOCKSTEP_CHECK(n >= k);
  const auto kth = candidates_.begin() + std::ptrdiff_t(k - 1);
  std::nth_element(candidates_.begin(), kth, candidates_.begin() + std::ptrdiff_t(n), [](auto& a, auto& b) { return a.key > b.key; });
  kept_logits_.clear();
  kept_ids_.clear();
  for (std::size_t i = 0; i < k; i++) {
    kept_logits_.push_back(key_logit(candidates_[i].key));
    kept_ids_.push_back(key_id(candidates_[i].key));
  }
  return kth->key;
}

/// Key of the last candidate of the shortest prefix whose mass reaches top_p. Masses are summed in bins of the logit first (any bins do
/// that follow the order), so that only the bin where the cut falls has to be sorted out.
std::uint64_t Sampler::cut_top_p(const Row& row, const SamplingParams& params, float largest) {
  constexpr float kBinsPerUnit = 8;
  constexpr int kBins = int(-kMassFloor * kBinsPerUnit) + 2;
  const float scale = float(double(kBinsPerUnit) / params.temperature);
  static_assert(kBins <= 256);
  const std::uint64_t total = softmax_masses(row.logits, params.temperature, double(largest) / params.temperature, masses_.data());
  const double wanted = params.top_p * double(total);

  const std::size_t size = row.logits.size();
  for (std::size_t i = 0; i < size; i++) {
    const float bin = (largest - row.logits[i]) * scale;
    bin_of_[i] = std::uint8_t(int(bin < float(kBins - 1) ? bin : float(kBins - 1)));  // infinity * 0 goes to the last bin too
  }
  std::array<std::uint64_t, kBins> bins{}, odd_bins{};  // two, so that neighbours in one bin do not wait for each other
  for (std::size_t i = 0; i + 1 < size; i += 2) {
    bins[bin_of_[i]] += masses_[i];
    odd_bins[bin_of_[i + 1]] += masses_[i + 1];
  }
  if (size % 2) bins[bin_of_[size - 1]] += masses_[size - 1];
  for (std::size_t j = 0; j < kBins; j++) bins[j] += odd_bins[j];
  std::uint64_t reached = 0;
  std::size_t cut_bin = 0;
  while (cut_bin + 1 < kBins && double(reached + bins[cut_bin]) < wanted) reached += bins[cut_bin++];

  std::size_t n = 0;
  for (std::size_t i = 0; i < size; i++)
    if (bin_of_[i] == cut_bin && masses_[i] != 0) candidates_[n++] = {order_key(row.logits[i], row.id(i)), masses_[i]};
  LOCKSTEP_CHECK(n > 0);

  // Halve the cut bin by order until the entry that reaches the wanted mass is found.
  auto begin = candidates_.begin(), end = begin + std::ptrdiff_t(n);
  while (end - begin > 1) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, [](auto& a, auto& b) { return a.key > b.key; });
    std::uint64_t half = 0;
    for (auto c = begin; c != middle; ++c) half += c->mass;
    if (double(reached + half) >= wanted) {
      end = middle;
    } else {
      reached += half;
      begin = middle;
    }
  }
  return begin->key;
}

}  // namespace lockstep::sampling
