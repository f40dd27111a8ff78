// Any bytes as a safetensors file, and as the header of one: refused with words, or every view lies inside and the views cover the data.
#include <cstdlib>
#include <cstring>
#include <string>

#include "checkpoint/safetensors.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void parse(std::span<const std::byte> bytes) {
  std::map<std::string, std::string> metadata;
  const auto tensors = lockstep::checkpoint::parse_safetensors(bytes, "fuzz.safetensors", &metadata);
  if (!tensors.ok()) {
    require(tensors.error().message.starts_with("fuzz.safetensors: ") && tensors.error().message.size() < 1000);
    return;
  }
  std::size_t total = 0;
  unsigned sum = 0;
  for (const auto& [name, view] : *tensors) {
    require(name == view.name && view.data >= bytes.data() && view.bytes <= std::size_t(bytes.data() + bytes.size() - view.data));
    require(std::size_t(view.elements()) * lockstep::dtype_bytes(view.dtype) == view.bytes);
    for (std::size_t i = 0; i < view.bytes; i++) sum += unsigned(view.data[i]);
    total += view.bytes;
  }
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  require(total == bytes.size() - 8 - header);
  static volatile unsigned sink;
  sink = sink + sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  parse(std::as_bytes(std::span(data, size)));
  std::string file(8, '\0');  // the same bytes as a header with the right length, and 16 bytes of data
  const std::uint64_t length = size;
  std::memcpy(file.data(), &length, 8);
  file.append(reinterpret_cast<const char*>(data), size).append(16, 'x');
  parse(std::as_bytes(std::span(file.data(), file.size())));
  return 0;
}
