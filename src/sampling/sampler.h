// The draw (docs/exactness.md, item 8): a function of the row's logits, the parameters, the seed and the index of the drawn token.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::sampling {

struct SamplingParams {
  double temperature = 0;  // <= 0: greedy
  int top_k = 0;           // <= 0: all
  double top_p = 1;        // >= 1: no cut
  double min_p = 0;        // <= 0: no cut
  std::uint64_t seed = 0;
};

/// Tokens a grammar allows, bit id % 32 of word id / 32 (ids past the last word are not allowed); empty: all.
using TokenMask = std::span<const std::uint32_t>;

/// Seed of choice i of a request: its seed for 0, splitmix64(seed + i) after.
std::uint64_t choice_seed(std::uint64_t seed, int choice);

/// Gumbel noise of a token: -ln(-ln u), u from (seed, index, token id) (docs/exactness.md).
double keyed_noise(std::uint64_t seed, std::uint64_t index, std::int32_t token);

/// Draws one token. logits: ids 0 .. largest tokenizer id (padding rows cut off), all finite. index: absolute index of the token being
/// drawn (first reply token: prompt length). history: committed tokens of the row's own path (penalties); mask: its grammar.
///
/// Meaning, in float64, with x = logit / temperature: candidates are sorted by logit descending, then id ascending, and cut to a prefix:
/// the first top_k; of those, mass = round(exp(x - largest x) * 2^40), the shortest prefix whose double(mass) reaches
/// top_p * double(total mass left by top_k); entries with x - largest x >= ln(min_p); entries of mass 0 never. Of what is left, the largest
/// x + keyed_noise wins, equal scores go to the lowest id. The first candidate is always kept. temperature <= 0, or so small that the
/// largest x overflows: the lowest id of the largest logit.
class Sampler {
 public:
  /// Scratch for a vocabulary of this size is allocated here, nothing in draw().
  explicit Sampler(std::int64_t vocabulary);
  std::int32_t draw(std::span<const float> logits, const SamplingParams& params, std::uint64_t index, std::span<const std::int32_t> history,
                    TokenMask mask = {});

 private:
  // Candidates: all of the row where ids is nullptr, else entry i is token ids[i].
  struct Row {
    std::span<const float> logits;
    const std::int32_t* ids = nullptr;
    std::int32_t id(std::size_t i) const { return ids ? ids[i] : std::int32_t(i); }
  };
  struct Candidate {
    std::uint64_t key;  // larger: earlier in the order (logit descending, id ascending)
    std::uint64_t mass;
  };
  Row allowed(std::span<const float> logits, TokenMask mask);
  std::size_t first_largest(std::span<const float> logits);
  std::uint64_t cut_top_k(const Row& row, std::size_t k);
  std::uint64_t cut_top_p(const Row& row, const SamplingParams& params, float largest);

  std::vector<float> block_maxima_, sorted_maxima_, allowed_logits_, kept_logits_;
  std::vector<std::int32_t> allowed_ids_, kept_ids_;
  std::vector<std::uint64_t> masses_;
  std::vector<std::uint8_t> bin_of_;
  std::vector<Candidate> candidates_;
};

}  // namespace lockstep::sampling
