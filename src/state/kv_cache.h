// K/V pages: fixed-size blocks shared between running sequences and kept states, copied when a shared one is written.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "base/result.h"
#include "memory/ledger.h"

namespace lockstep::state {

/// A page's bytes, 64-byte aligned, with their reservation.
class Page {
 public:
  Page(std::size_t bytes, memory::Reservation reservation);
  ~Page();
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
  memory::Reservation reservation_;
};
/// Shared by use count; a page with use_count() > 1 is never written.
using PageRef = std::shared_ptr<Page>;

/// Hands out pages under the ledger. Engine thread only.
class PagePool {
 public:
  PagePool(memory::Ledger& ledger, std::size_t page_bytes) : ledger_(ledger), page_bytes_(page_bytes) {}
  /// kDoesNotFit when the ledger has no room; nothing changes then.
  Result<PageRef> take();
  std::size_t page_bytes() const { return page_bytes_; }

 private:
  memory::Ledger& ledger_;
  std::size_t page_bytes_;
};

}  // namespace lockstep::state
