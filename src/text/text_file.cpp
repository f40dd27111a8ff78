#include "text/text_file.h"

#include <fmt/format.h>

#include <fstream>
#include <system_error>

namespace lockstep::text {

Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t most_bytes) {
  const std::string name = path.filename().string();
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return Error{ErrorCode::kNotFound, fmt::format("{} is not there", path.string()), name};
  }
  const auto bytes = std::filesystem::file_size(path, error);
  if (error) return Error{ErrorCode::kIo, fmt::format("{}: {}", path.string(), error.message()), name};
  if (bytes > most_bytes) {
    return Error{ErrorCode::kUnsupported, fmt::format("{} has {} bytes, more than the {} supported", path.string(), bytes, most_bytes),
                 name};
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(bytes, '\0');
  file.read(text.data(), std::streamsize(bytes));
  if (!file) return Error{ErrorCode::kIo, fmt::format("{} cannot be read", path.string()), name};
  return text;
}

}  // namespace lockstep::text
