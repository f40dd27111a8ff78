#include "base/sha256.h"

#include <openssl/evp.h>

#include <cstring>

#include "base/check.h"

namespace lockstep {
namespace {
EVP_MD_CTX* ctx(void* p) { return static_cast<EVP_MD_CTX*>(p); }
}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  LOCKSTEP_CHECK(context_ && EVP_DigestInit_ex(ctx(context_), EVP_sha256(), nullptr) == 1);
}
Sha256::~Sha256() { EVP_MD_CTX_free(ctx(context_)); }

void Sha256::update(std::span<const std::byte> bytes) {
  LOCKSTEP_CHECK(EVP_DigestUpdate(ctx(context_), bytes.data(), bytes.size()) == 1);
}
void Sha256::update_ids(std::span<const std::int32_t> ids) {
  static_assert(std::endian::native == std::endian::little);
  update(std::as_bytes(ids));
}
std::array<std::uint8_t, 32> Sha256::digest() const {
  EVP_MD_CTX* copy = EVP_MD_CTX_new();
  std::array<std::uint8_t, 32> out{};
  LOCKSTEP_CHECK(copy && EVP_MD_CTX_copy_ex(copy, ctx(context_)) == 1 && EVP_DigestFinal_ex(copy, out.data(), nullptr) == 1);
  EVP_MD_CTX_free(copy);
  return out;
}
std::string Sha256::hex() const {
  std::string s;
  for (auto b : digest()) {
    s += "0123456789abcdef"[b >> 4];
    s += "0123456789abcdef"[b & 15];
  }
  return s;
}

std::string token_sha256(std::span<const std::int32_t> ids) {
  Sha256 h;
  h.update_ids(ids);
  return h.hex();
}
std::uint64_t default_seed(std::span<const std::int32_t> prompt_ids) {
  Sha256 h;
  h.update_ids(prompt_ids);
  std::uint64_t seed;
  std::memcpy(&seed, h.digest().data(), 8);
  return seed;
}

}  // namespace lockstep
