// What a kept state is found by, in memory and on disk: its tokens and a salt, and the one rule of where a request may resume.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::prompt_cache {

/// Leading tokens that a and b share.
std::int64_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b);

/// Prefix hashes of a token sequence: hash of tokens [0, n) for every n, so that a lookup costs one pass and exact comparisons of likely hits.
std::vector<std::uint64_t> prefix_hashes(std::string_view salt, std::span<const std::int32_t> tokens);

struct Key {
  std::string salt;
  std::vector<std::int32_t> tokens;
  std::uint64_t hash = 0;  // of all of it
  Key() = default;
  Key(std::string_view s, std::span<const std::int32_t> t);
  bool operator==(const Key&) const = default;
};

/// A question to kept states: the longest resume point inside the common prefix with one of them and at most `limit` tokens long.
class Lookup {
 public:
  /// any_prefix: the model has no recurrent state, so a kept state serves every shorter prefix of it.
  Lookup(std::string_view salt, std::span<const std::int32_t> tokens, std::int64_t limit, bool any_prefix);
  /// Where a request may resume from a state of this key, in tokens; 0 where that is not above `above`.
  std::int64_t point(const Key& key, std::int64_t above) const;

 private:
  std::string_view salt_;
  std::span<const std::int32_t> tokens_;
  std::int64_t limit_;
  bool any_prefix_;
  std::vector<std::uint64_t> hashes_;  // empty where any_prefix
};

}  // namespace lockstep::prompt_cache
