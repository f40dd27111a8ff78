#include "memory/ledger.h"

#include <fmt/format.h>

#include <utility>

namespace lockstep::memory {

std::string_view tag_name(Tag tag) {
  constexpr std::string_view names[kTags] = {"weights", "lanes", "pages", "snapshots", "scratch"};
  return names[std::size_t(tag)];
}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    release();
    ledger_ = std::exchange(other.ledger_, nullptr);
    tag_ = other.tag_;
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Reservation::release() {
  if (ledger_) ledger_->give_back(tag_, bytes_);
  ledger_ = nullptr;
  bytes_ = 0;
}

Result<Reservation> Ledger::reserve(Tag tag, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  attempts_++;
  if (bytes > view_.budget_bytes - view_.held_bytes || attempts_ == planted_at_)
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("{} bytes of {} do not fit: {} of {} bytes are in use", bytes, tag_name(tag), view_.held_bytes, view_.budget_bytes),
                 std::string(tag_name(tag))};
  view_.held_bytes += bytes;
  view_.by_tag[std::size_t(tag)] += bytes;
  if (view_.held_bytes > view_.peak_bytes) view_.peak_bytes = view_.held_bytes;
  Reservation r;
  r.ledger_ = this;
  r.tag_ = tag;
  r.bytes_ = bytes;
  return r;
}

bool Ledger::fits(std::size_t bytes) const {
  std::lock_guard lock(mutex_);
  return bytes <= view_.budget_bytes - view_.held_bytes;
}

void Ledger::plant_failure(std::int64_t n) {
  std::lock_guard lock(mutex_);
  planted_at_ = n > 0 ? attempts_ + n : 0;
}

std::int64_t Ledger::attempts() const {
  std::lock_guard lock(mutex_);
  return attempts_;
}

LedgerView Ledger::view() const {
  std::lock_guard lock(mutex_);
  return view_;
}

void Ledger::give_back(Tag tag, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  LOCKSTEP_CHECK(view_.held_bytes >= bytes && view_.by_tag[std::size_t(tag)] >= bytes);
  view_.held_bytes -= bytes;
  view_.by_tag[std::size_t(tag)] -= bytes;
}

}  // namespace lockstep::memory
