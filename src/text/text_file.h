// A whole small file of a checkpoint as text. Private to this layer.
#pragma once
#include <cstddef>
#include <filesystem>
#include <string>

#include "base/result.h"

namespace lockstep::text {

/// kNotFound if there is no regular file, kUnsupported above `most_bytes`, kIo if reading fails; the message names the path.
Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t most_bytes);

}  // namespace lockstep::text
