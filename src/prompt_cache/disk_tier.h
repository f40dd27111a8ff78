// Kept states on disk, found by the prompt cache's own rule after a restart or after they left memory. Engine thread only, but for the writer's
// thread inside. Whatever a file holds or the disk does, a reply never fails or changes: what is not right is deleted, counted and logged.
#pragma once
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "prompt_cache/state_writer.h"

namespace lockstep::prompt_cache {

struct DiskOptions {
  std::filesystem::path folder;
  std::size_t limit_bytes = std::size_t(16) << 30;  // of files
  IdentityOf identity;
  WriterOptions writer;
};

/// A resume point found: a state, used up to `length` tokens; 0: none.
struct Hit {
  std::shared_ptr<const state::Snapshot> state;
  std::int64_t length = 0;
};

struct DiskStats {
  std::int64_t states = 0, hits = 0, writes = 0, write_drops = 0, evictions = 0, broken = 0;
  std::size_t bytes = 0;  // of states that are there or on their way
};

class DiskTier {
 public:
  /// Takes the folder (cache_folder.h has the refusals) and reads the keys of what is in it. Reserves a page of scratch.
  static Result<std::unique_ptr<DiskTier>> open(DiskOptions options, state::Store& store);
  ~DiskTier();

  struct Point {
    const Key* key = nullptr;
    std::int64_t length = 0;  // 0: none
  };
  /// The longest resume point above `above`. Valid until the next call that is not const.
  Point best(const Lookup& lookup, std::int64_t above) const;
  /// Ledger bytes that load takes; full pages of a hit in memory, whose prefix is the same, are used as they are.
  std::size_t load_bytes(const Point& point, const Hit& memory) const;
  /// Of these, what stays shared with the request that resumes there (full pages), those of the hit in memory included.
  std::size_t shared_bytes(const Point& point) const;
  /// Reads the state, or its first rows where there is no recurrent block. kDoesNotFit: the ledger has no room; any other error: the state was
  /// broken and is gone, ask for the next best.
  Result<std::shared_ptr<const state::Snapshot>> load(const Point& point, const Hit& memory);

  /// Queues a state to be written. Already there: its use counts. No room in the queue or under the limit: it is not written.
  void offer(const Key& key, const std::shared_ptr<const state::Snapshot>& snapshot);
  /// A use of a state that memory had.
  void touch(const Key& key);
  /// Takes back what the writer is done with; the number of snapshots let go.
  std::size_t collect();
  /// A state left memory under pressure: it is not held here for a write that has not begun.
  void forget(const state::Snapshot& snapshot) { writer_.forget(snapshot); }
  /// Gives up all writes, so that the writer holds nothing; false where it held nothing before.
  bool give_up();

  /// For the ledger whose bytes a load takes.
  const memory::Ledger& ledger() const { return store_.ledger; }
  DiskStats stats() const;

 private:
  struct State {
    Key key;
    std::string name;
    std::size_t bytes = 0;  // of its own file
    bool ready = false;     // its write has ended well
  };
  using States = std::list<State>;  // most recently used first

  DiskTier(CacheFolder folder, DiskOptions options, state::Store& store, memory::Reservation scratch);
  void index();
  std::size_t bytes() const { return state_bytes_ + page_uses_.size() * page_file_bytes(store_.backend.layout()); }
  void use(States::iterator it);
  void add(States::iterator before, State state, const Names& names);
  void remove(States::iterator it);
  bool evict_one();
  bool over_limit() const;
  Result<std::shared_ptr<const state::Snapshot>> read(const Point& point, const Hit& memory);
  std::int64_t full_pages(std::int64_t length) const;

  CacheFolder folder_;
  DiskOptions options_;
  state::Store& store_;
  memory::Reservation scratch_;
  bool any_prefix_;
  States states_;
  std::unordered_map<std::string, States::iterator> by_name_;
  std::unordered_map<std::string, int> page_uses_;  // full pages by name
  std::size_t state_bytes_ = 0, index_tokens_ = 0;
  DiskStats stats_;
  bool error_logged_ = false;
  StateWriter writer_;  // last: ends first
};

}  // namespace lockstep::prompt_cache
