// The JSON header of a safetensors file, read event by event: no document is built, so memory stays near the header's own length.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/tensor.h"

namespace lockstep::checkpoint {

struct SafetensorsHeader {
  struct Entry {
    DType dtype = DType::kF32;
    std::vector<std::int64_t> shape;     // not negative, at most 8 dimensions
    std::uint64_t begin = 0, end = 0;    // data_offsets, as written
  };
  std::map<std::string, Entry> tensors;
  std::map<std::string, std::string> metadata;
};

/// Grammar, types, known dtypes and duplicate names are checked here; sizes and ranges by the caller. `file` is for messages.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, const std::string& file);

}  // namespace lockstep::checkpoint
