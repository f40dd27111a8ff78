#include "prompt_cache/key.h"

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

}  // namespace

std::int64_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  const std::size_t n = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + std::ptrdiff_t(n), b.begin()).first - a.begin();
}

std::vector<std::uint64_t> prefix_hashes(std::string_view salt, std::span<const std::int32_t> tokens) {
  std::vector<std::uint64_t> hashes(tokens.size() + 1);
  hashes[0] = salt_hash(salt);
  for (std::size_t i = 0; i < tokens.size(); i++) hashes[i + 1] = mix(hashes[i] ^ std::uint64_t(std::uint32_t(tokens[i])) ^ (i << 32));
  return hashes;
}

Key::Key(std::string_view s, std::span<const std::int32_t> t) : salt(s), tokens(t.begin(), t.end()), hash(prefix_hashes(s, t).back()) {}

Lookup::Lookup(std::string_view salt, std::span<const std::int32_t> tokens, std::int64_t limit, bool any_prefix)
    : salt_(salt), tokens_(tokens), limit_(std::min(limit, std::int64_t(tokens.size()))), any_prefix_(any_prefix) {
  if (!any_prefix) hashes_ = prefix_hashes(salt, tokens);
}

std::int64_t Lookup::point(const Key& key, std::int64_t above) const {
  const std::int64_t n = std::int64_t(key.tokens.size());
  if (n <= above || limit_ <= above || key.salt != salt_) return 0;
  if (any_prefix_) {
    if (key.tokens[std::size_t(above)] != tokens_[std::size_t(above)]) return 0;  // many share the prefix that was found already
    const std::int64_t shared = std::min(limit_, common_prefix(key.tokens, tokens_));
    return shared > above ? shared : 0;
  }
  return n <= limit_ && hashes_[std::size_t(n)] == key.hash && common_prefix(key.tokens, tokens_) == n ? n : 0;
}

}  // namespace lockstep::prompt_cache
