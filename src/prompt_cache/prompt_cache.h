// Kept states keyed by tokens and a salt, in memory and (optional) on disk. Engine thread only.
#pragma once
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>

#include "prompt_cache/disk_tier.h"
#include "prompt_cache/key.h"
#include "state/sequence_state.h"

namespace lockstep::prompt_cache {

struct Stats {
  std::int64_t entries = 0, lookups = 0, hits = 0, inserted = 0, evicted = 0, refused = 0;
  std::size_t bytes = 0;  // snapshots and the distinct pages they hold
  DiskStats disk;
};

class PromptCache {
 public:
  /// limit_bytes 0: off (insert keeps nothing). any_prefix: the model has no recurrent state, so a kept state serves every shorter prefix of it.
  /// disk: may be nullptr.
  PromptCache(std::size_t limit_bytes, std::size_t page_bytes, bool any_prefix, std::unique_ptr<DiskTier> disk = nullptr)
      : limit_bytes_(limit_bytes), page_bytes_(page_bytes), any_prefix_(any_prefix), disk_(std::move(disk)) {}

  using Hit = prompt_cache::Hit;
  /// The longest resume point inside the common prefix with a kept state and at most `limit` tokens long. One on disk is loaded where the ledger
  /// has room for it beside `request_bytes` (pages the whole request takes), states in memory making way; else the best in memory is the hit.
  Hit find(std::string_view salt, std::span<const std::int32_t> tokens, std::int64_t limit, std::size_t request_bytes = 0);
  /// As find, without counting a use and without loading.
  std::int64_t longest(std::string_view salt, std::span<const std::int32_t> tokens, std::int64_t limit) const;

  /// Whether memory has this state: one on disk alone is worth keeping where it was just computed.
  bool contains(std::string_view salt, std::span<const std::int32_t> tokens) const;
  /// Keeps a state of exactly these tokens, evicting by use to stay within the limit; refused when it alone is over it. Goes to disk in the
  /// background.
  void insert(std::string_view salt, std::span<const std::int32_t> tokens, std::shared_ptr<const state::Snapshot> state);
  /// Drops the least recently used entry, after the last one what is still to be written to disk; false when there is nothing left. A state
  /// being restored is held by its user and lives on.
  bool evict_one();

  /// What dropping every entry in memory would give back: pages that running streams share stay.
  std::size_t evictable_bytes() const;

  bool enabled() const { return limit_bytes_ > 0; }
  Stats stats() const;

 private:
  struct Entry {
    Key key;
    std::shared_ptr<const state::Snapshot> state;
  };
  using Entries = std::list<Entry>;  // most recently used first
  Entries::const_iterator best(const Lookup& lookup, std::int64_t* length) const;
  void find_on_disk(std::string_view salt, std::span<const std::int32_t> tokens, const Lookup& lookup, std::size_t request_bytes, Hit* hit);
  bool make_room(std::size_t needed_bytes);
  void keep(Key key, std::shared_ptr<const state::Snapshot> state);
  std::shared_ptr<const state::Snapshot> drop_oldest();
  std::size_t bytes() const { return snapshot_bytes_ + page_uses_.size() * page_bytes_; }
  void hold(const state::Snapshot& state);
  void let_go(const state::Snapshot& state);

  std::size_t limit_bytes_, page_bytes_;
  bool any_prefix_;
  Entries entries_;
  struct PageUse {
    int entries = 0;
    std::weak_ptr<const state::Page> page;
  };
  std::unordered_map<const state::Page*, PageUse> page_uses_;
  std::size_t snapshot_bytes_ = 0;
  Stats stats_;
  std::unique_ptr<DiskTier> disk_;
};

}  // namespace lockstep::prompt_cache
