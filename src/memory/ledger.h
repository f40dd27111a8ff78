// The ledger: every long-lived byte is reserved under a tag before it is allocated.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string_view>

#include "base/result.h"

namespace lockstep::memory {

enum class Tag { kWeights, kLanes, kPages, kSnapshots, kScratch };
inline constexpr std::size_t kTags = 5;
std::string_view tag_name(Tag tag);

class Ledger;

/// Bytes held under a tag; given back when it goes out of scope.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation() { release(); }
  void release();
  std::size_t bytes() const { return bytes_; }

 private:
  friend class Ledger;
  Ledger* ledger_ = nullptr;
  Tag tag_ = Tag::kScratch;
  std::size_t bytes_ = 0;
};

struct LedgerView {
  std::size_t budget_bytes = 0, held_bytes = 0, peak_bytes = 0;
  std::array<std::size_t, kTags> by_tag{};
};

/// Thread-safe. The budget is a hard limit: a reservation that would pass it is refused, and nothing changes.
class Ledger {
 public:
  explicit Ledger(std::size_t budget_bytes = std::numeric_limits<std::size_t>::max()) { view_.budget_bytes = budget_bytes; }
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// kDoesNotFit with the numbers when held + bytes would pass the budget.
  Result<Reservation> reserve(Tag tag, std::size_t bytes);
  bool fits(std::size_t bytes) const;
  /// Fault injection for tests: the n-th reservation from now (1: the next) is refused as if the budget were full; 0: none.
  void plant_failure(std::int64_t n);
  /// Reservations made or refused so far.
  std::int64_t attempts() const;
  LedgerView view() const;

 private:
  friend class Reservation;
  void give_back(Tag tag, std::size_t bytes);
  mutable std::mutex mutex_;
  LedgerView view_;
  std::int64_t attempts_ = 0, planted_at_ = 0;
};

}  // namespace lockstep::memory
