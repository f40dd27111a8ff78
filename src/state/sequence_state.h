// State of one sequence: K/V pages, recurrent block, and how far its rows stand (EXACTNESS item 5). Roll back is by length.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/backend.h"
#include "memory/ledger.h"
#include "state/kv_cache.h"

namespace lockstep::state {

/// What all states of an engine share.
struct Store {
  kernels::Backend& backend;
  memory::Ledger& ledger;
  PagePool pages;
  Store(kernels::Backend& b, memory::Ledger& l) : backend(b), ledger(l), pages(l, b.layout().page_bytes) {}
  Store(const Store&) = delete;
};

/// A kept state at `length`: shared pages and a packed copy of the recurrent block. Immutable.
struct Snapshot {
  std::int64_t length = 0;
  std::vector<PageRef> pages;  // of positions [0, length), the last one perhaps partly
  memory::Reservation reservation;  // before `recurrent`: given back after the bytes are freed
  std::unique_ptr<std::byte[]> recurrent;
  std::size_t recurrent_bytes = 0;
};

class SequenceState {
 public:
  /// An empty sequence; reserves its recurrent block under the lanes tag.
  static Result<std::unique_ptr<SequenceState>> create(Store& store);

  /// Rows that stand.
  std::int64_t length() const { return length_; }
  /// Rows of the last forward that do not stand (yet).
  int guesses() const { return guesses_; }

  /// Makes positions [length, length + rows) writable: takes pages, copies shared ones. All or nothing; kDoesNotFit when the ledger is full.
  Status prepare(std::int64_t rows);
  /// Whether prepare(rows) was done.
  bool prepared(std::int64_t rows) const;
  /// Pages prepare(rows) would take.
  std::int64_t pages_needed(std::int64_t rows) const;

  /// As kernels see it.
  kernels::SequenceView view();
  /// After a forward of `rows` rows of which `stand` stand.
  void advance(int rows, int stand);
  /// The first n guesses stand, the others leave no trace.
  void keep(int n);

  /// Back to position 0; pages are given back.
  void clear();
  /// Copy of the standing state; guesses are dropped. Reserves under the snapshots tag.
  Result<std::shared_ptr<const Snapshot>> save();
  /// This sequence becomes the kept state, or its first `length` rows where there is no recurrent state; pages are shared.
  void restore(const Snapshot& kept, std::int64_t length);

  /// SHA-256 over the standing state in logical order; guesses are dropped.
  std::string fingerprint();

 private:
  explicit SequenceState(Store& store) : store_(store) {}
  void settle();  // drops guesses and folds, so that fewer than 16 rows are open

  Store& store_;
  memory::Reservation reservation_;
  struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t(64)); }
  };
  std::unique_ptr<std::byte, Free> recurrent_;
  std::vector<PageRef> pages_;
  std::vector<std::byte*> page_table_;
  std::int64_t length_ = 0, folded_ = 0;
  int guesses_ = 0;
};

}  // namespace lockstep::state
