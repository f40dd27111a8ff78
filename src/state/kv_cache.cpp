#include "state/kv_cache.h"

#include <new>
#include <utility>

namespace lockstep::state {

Page::Page(std::size_t bytes, memory::Reservation reservation)
    : data_(static_cast<std::byte*>(::operator new(bytes, std::align_val_t(64)))), reservation_(std::move(reservation)) {}
Page::~Page() { ::operator delete(data_, std::align_val_t(64)); }

Result<PageRef> PagePool::take() {
  LOCKSTEP_ASSIGN(auto reservation, ledger_.reserve(memory::Tag::kPages, page_bytes_));
  return std::make_shared<Page>(page_bytes_, std::move(reservation));
}

}  // namespace lockstep::state
