// The draw (EXACTNESS item 8): a function of the row's logits, the parameters, the seed and the index of the drawn token.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::sampling {

struct SamplingParams {
  double temperature = 0;  // <= 0: greedy
  int top_k = 0;           // 0: all
  double top_p = 1;
  double min_p = 0;
  std::uint64_t seed = 0;
};

/// Tokens a grammar allows, bit id % 32 of word id / 32; empty: all.
using TokenMask = std::span<const std::uint32_t>;

/// Seed of choice i of a request: its seed for 0, splitmix64(seed + i) after.
std::uint64_t choice_seed(std::uint64_t seed, int choice);

/// Gumbel noise of a token: -ln(-ln u), u from (seed, index, token id) (speculation.md 4.3).
double keyed_noise(std::uint64_t seed, std::uint64_t index, std::int32_t token);

/// Draws one token. logits: ids 0 .. largest tokenizer id (padding rows cut off), all finite. index: absolute index of the token being
/// drawn (first reply token: prompt length). history: committed tokens of the row's own path (penalties); mask: its grammar.
class Sampler {
 public:
  /// Scratch for a vocabulary of this size is allocated here, nothing in draw().
  explicit Sampler(std::int64_t vocabulary);
  std::int32_t draw(std::span<const float> logits, const SamplingParams& params, std::uint64_t index, std::span<const std::int32_t> history,
                    TokenMask mask = {});

 private:
  std::vector<std::int32_t> candidates_;
  std::vector<double> scores_;
};

}  // namespace lockstep::sampling
