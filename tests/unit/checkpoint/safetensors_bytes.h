// Safetensors files put together by hand.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "checkpoint/safetensors.h"
#include "unit/checkpoint/corpus.h"

namespace lockstep::testing {

/// `length` (by default the header's own), header, and so many bytes of data, which count up.
inline std::string safetensors_bytes(const std::string& header, std::size_t data_bytes, std::uint64_t length) {
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  file += header;
  for (std::size_t i = 0; i < data_bytes; i++) file += char(i & 63);
  return file;
}
inline std::string safetensors_bytes(const std::string& header, std::size_t data_bytes) {
  return safetensors_bytes(header, data_bytes, header.size());
}

inline auto parse_bytes(const std::string& file, std::map<std::string, std::string>* metadata = nullptr) {
  keep_seed("safetensors", file);
  return checkpoint::parse_safetensors(std::as_bytes(std::span(file.data(), file.size())), "x.safetensors", metadata);
}

}  // namespace lockstep::testing
