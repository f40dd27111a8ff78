// Kept states keyed by tokens and a salt. Engine thread only.
#pragma once
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "state/sequence_state.h"

namespace lockstep::prompt_cache {

/// Prefix hashes of a token sequence: hash of tokens [0, n) for every n, so that a lookup costs one pass and exact comparisons of likely hits.
std::vector<std::uint64_t> prefix_hashes(std::string_view salt, std::span<const std::int32_t> tokens);

struct Stats {
  std::int64_t entries = 0, lookups = 0, hits = 0, inserted = 0, evicted = 0, refused = 0;
  std::size_t bytes = 0;  // snapshots and the distinct pages they hold
};

class PromptCache {
 public:
  /// limit_bytes 0: off (insert keeps nothing). any_prefix: the model has no recurrent state, so a kept state serves every shorter prefix of it.
  PromptCache(std::size_t limit_bytes, std::size_t page_bytes, bool any_prefix)
      : limit_bytes_(limit_bytes), page_bytes_(page_bytes), any_prefix_(any_prefix) {}

  struct Hit {
    std::shared_ptr<const state::Snapshot> state;
    std::int64_t length = 0;  // rows to resume at; 0: no hit
  };
  /// The longest resume point inside the common prefix with a kept state and at most `limit` tokens long.
  Hit find(std::string_view salt, std::span<const std::int32_t> tokens, std::int64_t limit);
  /// As find, without counting a use.
  std::int64_t longest(std::string_view salt, std::span<const std::int32_t> tokens, std::int64_t limit) const;

  bool contains(std::string_view salt, std::span<const std::int32_t> tokens) const;
  /// Keeps a state of exactly these tokens, evicting by use to stay within the limit; refused when it alone is over it.
  void insert(std::string_view salt, std::span<const std::int32_t> tokens, std::shared_ptr<const state::Snapshot> state);
  /// Drops the least recently used entry; false when there is none. A state being restored is held by its user and lives on.
  bool evict_one();

  bool enabled() const { return limit_bytes_ > 0; }
  Stats stats() const;

 private:
  struct Entry {
    std::string salt;
    std::vector<std::int32_t> tokens;
    std::uint64_t hash = 0;
    std::shared_ptr<const state::Snapshot> state;
  };
  using Entries = std::list<Entry>;  // most recently used first
  Entries::const_iterator best(std::string_view salt, std::span<const std::int32_t> tokens, std::int64_t limit, std::int64_t* length) const;
  std::size_t bytes() const { return snapshot_bytes_ + page_uses_.size() * page_bytes_; }
  void hold(const state::Snapshot& state);
  void let_go(const state::Snapshot& state);

  std::size_t limit_bytes_, page_bytes_;
  bool any_prefix_;
  Entries entries_;
  std::unordered_map<const state::Page*, int> page_uses_;
  std::size_t snapshot_bytes_ = 0;
  Stats stats_;
};

}  // namespace lockstep::prompt_cache
