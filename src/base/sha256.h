// SHA-256 over bytes and over token ids.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

/// Incremental SHA-256 (OpenSSL EVP).
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(std::span<const std::byte> bytes);
  /// Token ids as little-endian 32-bit numbers.
  void update_ids(std::span<const std::int32_t> ids);
  /// Digest of everything so far; the object may go on being updated.
  std::array<std::uint8_t, 32> digest() const;
  std::string hex() const;

 private:
  void* context_;
};

/// Hex SHA-256 of ids as little-endian 32-bit numbers: the reply hash on the wire.
std::string token_sha256(std::span<const std::int32_t> ids);
/// First 8 bytes of SHA-256 over ids, little-endian: the seed of a request that has none (EXACTNESS item 8).
std::uint64_t default_seed(std::span<const std::int32_t> prompt_ids);

}  // namespace lockstep
