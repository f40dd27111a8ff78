#include "prompt_cache/prompt_cache.h"

#include <algorithm>

namespace lockstep::prompt_cache {

PromptCache::Entries::const_iterator PromptCache::best(const Lookup& lookup, std::int64_t* length) const {
  auto found = entries_.end();
  *length = 0;
  for (auto it = entries_.begin(); it != entries_.end(); ++it)
    if (const std::int64_t n = lookup.point(it->key, *length); n > 0) *length = n, found = it;
  return found;
}

PromptCache::Hit PromptCache::find(std::string_view salt, std::span<const std::int32_t> tokens, std::int64_t limit, std::size_t request_bytes) {
  stats_.lookups++;
  const Lookup lookup(salt, tokens, limit, any_prefix_);
  Hit hit;
  const auto it = best(lookup, &hit.length);
  if (it != entries_.end()) {
    hit.state = it->state;
    entries_.splice(entries_.begin(), entries_, it);
    if (disk_) disk_->touch(it->key);
  }
  if (disk_) find_on_disk(salt, tokens, lookup, request_bytes, &hit);
  stats_.hits += hit.length > 0;
  return hit;
}

// A broken state is gone after the attempt, so this ends.
void PromptCache::find_on_disk(std::string_view salt, std::span<const std::int32_t> tokens, const Lookup& lookup, std::size_t request_bytes,
                               Hit* hit) {
  disk_->collect();
  for (;;) {
    const DiskTier::Point point = disk_->best(lookup, hit->length);
    if (point.length == 0) return;
    // Only where the request will run on it: a state that is loaded and evicted for the same request would be loaded again in every round.
    const std::size_t rest = request_bytes - std::min(request_bytes, disk_->shared_bytes(point));
    if (!make_room(disk_->load_bytes(point, *hit) + rest)) return;
    auto loaded = disk_->load(point, *hit);
    if (loaded.ok()) {
      *hit = {std::move(loaded).value(), point.length};
      return keep(Key(salt, tokens.first(std::size_t(point.length))), hit->state);
    }
    if (loaded.error().code == ErrorCode::kDoesNotFit) return;
  }
}

bool PromptCache::make_room(std::size_t needed_bytes) {
  const memory::LedgerView ledger = disk_->ledger().view();
  if (needed_bytes > ledger.budget_bytes - ledger.held_bytes + evictable_bytes()) return false;  // no use in evicting all
  while (!disk_->ledger().fits(needed_bytes))
    if (!evict_one()) return false;
  return true;
}

std::int64_t PromptCache::longest(std::string_view salt, std::span<const std::int32_t> tokens, std::int64_t limit) const {
  const Lookup lookup(salt, tokens, limit, any_prefix_);
  std::int64_t length = 0;
  best(lookup, &length);
  return disk_ ? std::max(length, disk_->best(lookup, length).length) : length;
}

bool PromptCache::contains(std::string_view salt, std::span<const std::int32_t> tokens) const {
  std::int64_t length = 0;
  best(Lookup(salt, tokens, std::int64_t(tokens.size()), any_prefix_), &length);
  return length == std::int64_t(tokens.size());
}

void PromptCache::insert(std::string_view salt, std::span<const std::int32_t> tokens, std::shared_ptr<const state::Snapshot> state) {
  LOCKSTEP_CHECK(state->length == std::int64_t(tokens.size()));
  if (!enabled() || tokens.empty() || contains(salt, tokens)) return;
  Key key(salt, tokens);
  if (disk_) disk_->offer(key, state);
  keep(std::move(key), std::move(state));
}

void PromptCache::keep(Key key, std::shared_ptr<const state::Snapshot> state) {
  if (state->recurrent_bytes + state->pages.size() * page_bytes_ > limit_bytes_) {
    stats_.refused++;
    return;
  }
  hold(*state);
  entries_.push_front({std::move(key), std::move(state)});
  stats_.inserted++;
  while (bytes() > limit_bytes_) drop_oldest();
}

bool PromptCache::evict_one() {
  if (entries_.empty()) return disk_ && disk_->give_up();
  // Its bytes are wanted: they are not to wait for a write that has not begun.
  if (const auto state = drop_oldest(); disk_) {
    disk_->forget(*state);
    disk_->collect();
  }
  return true;
}

std::shared_ptr<const state::Snapshot> PromptCache::drop_oldest() {
  auto state = std::move(entries_.back().state);
  let_go(*state);
  entries_.pop_back();
  stats_.evicted++;
  return state;
}

void PromptCache::hold(const state::Snapshot& state) {
  snapshot_bytes_ += state.recurrent_bytes;
  for (const state::PageRef& page : state.pages) {
    PageUse& use = page_uses_[page.get()];
    use.entries++;
    use.page = page;
  }
}

void PromptCache::let_go(const state::Snapshot& state) {
  snapshot_bytes_ -= state.recurrent_bytes;
  for (const state::PageRef& page : state.pages)
    if (--page_uses_[page.get()].entries == 0) page_uses_.erase(page.get());
}

std::size_t PromptCache::evictable_bytes() const {
  const auto ours = std::count_if(page_uses_.begin(), page_uses_.end(), [](const auto& use) { return use.second.page.use_count() == use.second.entries; });
  return snapshot_bytes_ + std::size_t(ours) * page_bytes_;
}

Stats PromptCache::stats() const {
  Stats s = stats_;
  s.entries = std::int64_t(entries_.size());
  s.bytes = bytes();
  if (disk_) s.disk = disk_->stats();
  return s;
}

}  // namespace lockstep::prompt_cache
