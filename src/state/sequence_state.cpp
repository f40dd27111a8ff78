#include "state/sequence_state.h"

#include <new>

#include "base/sha256.h"

namespace lockstep::state {
namespace {
constexpr std::int64_t kChunk = 16;  // EXACTNESS item 5
}

Result<std::unique_ptr<SequenceState>> SequenceState::create(Store& store) {
  std::unique_ptr<SequenceState> s(new SequenceState(store));
  const std::size_t bytes = store.backend.layout().recurrent_bytes;
  if (bytes) {
    LOCKSTEP_ASSIGN(s->reservation_, store.ledger.reserve(memory::Tag::kLanes, bytes));
    s->recurrent_.reset(static_cast<std::byte*>(::operator new(bytes, std::align_val_t(64))));
    store.backend.clear(s->recurrent_.get());
  }
  return s;
}

std::int64_t SequenceState::pages_needed(std::int64_t rows) const {
  const kernels::StateLayout& layout = store_.backend.layout();
  if (!layout.page_tokens || rows <= 0) return 0;
  const std::int64_t first = length_ / layout.page_tokens, last = (length_ + rows - 1) / layout.page_tokens;
  std::int64_t n = 0;
  for (std::int64_t j = first; j <= last; j++) n += j >= std::int64_t(pages_.size()) || pages_[std::size_t(j)].use_count() > 1;
  return n;
}

bool SequenceState::prepared(std::int64_t rows) const { return pages_needed(rows) == 0; }

Status SequenceState::prepare(std::int64_t rows) {
  const kernels::StateLayout& layout = store_.backend.layout();
  const std::int64_t needed = pages_needed(rows);
  if (!needed) return {};
  std::vector<PageRef> fresh;
  for (std::int64_t i = 0; i < needed; i++) {
    LOCKSTEP_ASSIGN(PageRef page, store_.pages.take());
    fresh.push_back(std::move(page));
  }
  const std::int64_t last = (length_ + rows - 1) / layout.page_tokens;
  for (std::int64_t j = length_ / layout.page_tokens; j <= last; j++) {
    const bool exists = j < std::int64_t(pages_.size());
    if (exists && pages_[std::size_t(j)].use_count() == 1) continue;
    PageRef page = std::move(fresh.back());
    fresh.pop_back();
    if (exists) {
      const std::int64_t kept = length_ - j * layout.page_tokens;
      if (kept > 0) store_.backend.copy_page(pages_[std::size_t(j)]->data(), page->data(), int(std::min<std::int64_t>(kept, layout.page_tokens)));
      page_table_[std::size_t(j)] = page->data();
      pages_[std::size_t(j)] = std::move(page);
    } else {
      page_table_.push_back(page->data());
      pages_.push_back(std::move(page));
    }
  }
  return {};
}

kernels::SequenceView SequenceState::view() { return {page_table_.data(), recurrent_.get(), length_, folded_}; }

void SequenceState::advance(int rows, int stand) {
  LOCKSTEP_CHECK(stand >= 1 && stand <= rows);
  length_ += stand;
  guesses_ = rows - stand;
  // The forward folded every chunk whose rows all stood in it.
  folded_ = length_ / kChunk * kChunk;
}

void SequenceState::keep(int n) {
  LOCKSTEP_CHECK(n >= 0 && n <= guesses_);
  length_ += n;
  guesses_ = 0;
}

void SequenceState::settle() {
  guesses_ = 0;
  if (length_ - folded_ >= kChunk && recurrent_) store_.backend.fold(view());
  folded_ = length_ / kChunk * kChunk;
}

void SequenceState::clear() {
  pages_.clear();
  page_table_.clear();
  length_ = folded_ = 0;
  guesses_ = 0;
  if (recurrent_) store_.backend.clear(recurrent_.get());
}

Result<std::shared_ptr<const Snapshot>> SequenceState::save() {
  settle();
  auto kept = std::make_shared<Snapshot>();
  const kernels::StateLayout& layout = store_.backend.layout();
  kept->length = length_;
  if (recurrent_) {
    kept->recurrent_bytes = layout.snapshot_bytes(int(length_ - folded_));
    LOCKSTEP_ASSIGN(kept->reservation, store_.ledger.reserve(memory::Tag::kSnapshots, kept->recurrent_bytes));
    kept->recurrent = std::make_unique_for_overwrite<std::byte[]>(kept->recurrent_bytes);
    store_.backend.save(view(), kept->recurrent.get());
  }
  kept->pages.assign(pages_.begin(), pages_.begin() + layout.pages(length_));
  return std::shared_ptr<const Snapshot>(std::move(kept));
}

void SequenceState::restore(const Snapshot& kept, std::int64_t length) {
  LOCKSTEP_CHECK(length == kept.length || (length < kept.length && !recurrent_));
  pages_.assign(kept.pages.begin(), kept.pages.begin() + store_.backend.layout().pages(length));
  page_table_.clear();
  for (const PageRef& page : pages_) page_table_.push_back(page->data());
  length_ = length;
  folded_ = length_ / kChunk * kChunk;
  guesses_ = 0;
  if (recurrent_) store_.backend.restore(kept.recurrent.get(), length_, recurrent_.get());
#ifdef LOCKSTEP_PLANT_SNAPSHOT_LATE  // tests/exactness/planted.sh: a kept state used one token late must turn the driver red
  if (length_ % kChunk) length_++;
#endif
}

std::string SequenceState::fingerprint() {
  settle();
  Sha256 hash;
  store_.backend.export_state(view(), [&](std::span<const std::byte> bytes) { hash.update(bytes); });
  return hash.hex();
}

}  // namespace lockstep::state
