#include "prompt_cache/prompt_cache.h"

#include <algorithm>

namespace lockstep::prompt_cache {
namespace {

std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  return x ^ x >> 31;
}

std::uint64_t salt_hash(std::string_view salt) {
  std::uint64_t h = salt.size();
  for (unsigned char c : salt) h = mix(h ^ c);
  return h;
}

std::int64_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  const std::size_t n = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + std::ptrdiff_t(n), b.begin()).first - a.begin();
}

}  // namespace

std::vector<std::uint64_t> prefix_hashes(std::string_view salt, std::span<const std::int32_t> tokens) {
  std::vector<std::uint64_t> hashes(tokens.size() + 1);
  hashes[0] = salt_hash(salt);
  for (std::size_t i = 0; i < tokens.size(); i++) hashes[i + 1] = mix(hashes[i] ^ std::uint64_t(std::uint32_t(tokens[i])) ^ (i << 32));
  return hashes;
}

PromptCache::Entries::const_iterator PromptCache::best(std::string_view salt, std::span<const std::int32_t> tokens, std::int64_t limit,
                                                       std::int64_t* length) const {
  const std::vector<std::uint64_t> hashes = prefix_hashes(salt, tokens);
  auto found = entries_.end();
  *length = 0;
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    const std::int64_t n = std::int64_t(it->tokens.size());
    if (it->salt != salt) continue;
    if (any_prefix_) {
      const std::int64_t shared = std::min(limit, common_prefix(it->tokens, tokens));
      if (shared > *length) *length = shared, found = it;
    } else if (n <= limit && n > *length && n <= std::int64_t(tokens.size()) && hashes[std::size_t(n)] == it->hash &&
               common_prefix(it->tokens, tokens) == n) {
      *length = n;
      found = it;
    }
  }
  return found;
}

PromptCache::Hit PromptCache::find(std::string_view salt, std::span<const std::int32_t> tokens, std::int64_t limit) {
  stats_.lookups++;
  Hit hit;
  const auto it = best(salt, tokens, limit, &hit.length);
  if (it == entries_.end()) return hit;
  stats_.hits++;
  hit.state = it->state;
  entries_.splice(entries_.begin(), entries_, it);
  return hit;
}

std::int64_t PromptCache::longest(std::string_view salt, std::span<const std::int32_t> tokens, std::int64_t limit) const {
  std::int64_t length = 0;
  best(salt, tokens, limit, &length);
  return length;
}

bool PromptCache::contains(std::string_view salt, std::span<const std::int32_t> tokens) const {
  return longest(salt, tokens, std::int64_t(tokens.size())) == std::int64_t(tokens.size());
}

void PromptCache::insert(std::string_view salt, std::span<const std::int32_t> tokens, std::shared_ptr<const state::Snapshot> state) {
  LOCKSTEP_CHECK(state->length == std::int64_t(tokens.size()));
  if (!enabled() || tokens.empty() || contains(salt, tokens)) return;
  Entry entry{std::string(salt), {tokens.begin(), tokens.end()}, prefix_hashes(salt, tokens).back(), std::move(state)};
  hold(*entry.state);
  entries_.push_front(std::move(entry));
  stats_.inserted++;
  while (bytes() > limit_bytes_ && entries_.size() > 1) evict_one();
  if (bytes() > limit_bytes_) {
    stats_.refused++;
    evict_one();
  }
}

bool PromptCache::evict_one() {
  if (entries_.empty()) return false;
  let_go(*entries_.back().state);
  entries_.pop_back();
  stats_.evicted++;
  return true;
}

void PromptCache::hold(const state::Snapshot& state) {
  snapshot_bytes_ += state.recurrent_bytes;
  for (const state::PageRef& page : state.pages) page_uses_[page.get()]++;
}

void PromptCache::let_go(const state::Snapshot& state) {
  snapshot_bytes_ -= state.recurrent_bytes;
  for (const state::PageRef& page : state.pages)
    if (--page_uses_[page.get()] == 0) page_uses_.erase(page.get());
}

Stats PromptCache::stats() const {
  Stats s = stats_;
  s.entries = std::int64_t(entries_.size());
  s.bytes = bytes();
  return s;
}

}  // namespace lockstep::prompt_cache
