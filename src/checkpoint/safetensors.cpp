#include "checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <vector>

#include "checkpoint/json_file.h"
#include "checkpoint/safetensors_header.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

Error corrupt(const std::string& file, const std::string& words) { return {ErrorCode::kCorruptFile, file + ": " + words, file}; }
Error bad_tensor(const std::string& file, const std::string& name, const std::string& words) {
  return {ErrorCode::kCorruptFile, file + ": tensor " + printable(name) + " " + words, name};
}

/// Bytes of the shape, or nothing where the product leaves 63 bits. Zero dimensions do not hide an overflow beside them.
std::optional<std::uint64_t> shape_bytes(const std::vector<std::int64_t>& shape, std::uint64_t element_bytes) {
  std::uint64_t product = element_bytes;
  bool zero = false;
  for (const std::int64_t d : shape) {
    if (d == 0) {
      zero = true;
      continue;
    }
    if (product > (std::uint64_t(1) << 62) / std::uint64_t(d)) return std::nullopt;
    product *= std::uint64_t(d);
  }
  return zero ? 0 : product;
}

struct Range {
  std::uint64_t begin, end;
  const std::string* name;
};

/// The ranges must follow one another from 0 to the buffer's end: no overlap, no hole.
Status check_cover(std::vector<Range> ranges, std::uint64_t buffer_bytes, const std::string& file) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::uint64_t at = 0;
  const std::string* before = nullptr;
  for (const Range& r : ranges) {
    if (r.begin < at) return bad_tensor(file, *r.name, "overlaps tensor " + printable(*before));
    if (r.begin > at) return bad_tensor(file, *r.name, "leaves a hole of " + std::to_string(r.begin - at) + " bytes before it");
    at = r.end;
    before = r.name;
  }
  if (at != buffer_bytes)
    return corrupt(file, "has " + std::to_string(buffer_bytes - at) + " bytes after its last tensor that belong to none");
  return {};
}

}  // namespace

Result<std::map<std::string, TensorView>> parse_safetensors(std::span<const std::byte> bytes, const std::string& file_name,
                                                            std::map<std::string, std::string>* metadata) {
  static_assert(std::endian::native == std::endian::little);
  std::uint64_t header_bytes = 0;
  if (bytes.size() < 8) return corrupt(file_name, "has " + std::to_string(bytes.size()) + " bytes, too few for a safetensors file");
  std::memcpy(&header_bytes, bytes.data(), 8);
  if (header_bytes > kMaxHeaderBytes)
    return corrupt(file_name, "states a header of " + std::to_string(header_bytes) + " bytes; the limit is " + std::to_string(kMaxHeaderBytes));
  if (header_bytes > bytes.size() - 8)
    return corrupt(file_name, "states a header of " + std::to_string(header_bytes) + " bytes but ends after " + std::to_string(bytes.size() - 8));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, std::size_t(header_bytes));
  if (text.empty() || text[0] != '{') return corrupt(file_name, "has a header that does not begin with {");
  LOCKSTEP_ASSIGN(SafetensorsHeader header, parse_safetensors_header(text, file_name));

  const std::byte* buffer = bytes.data() + 8 + header_bytes;
  const std::uint64_t buffer_bytes = bytes.size() - 8 - header_bytes;
  std::map<std::string, TensorView> tensors;
  std::vector<Range> ranges;
  ranges.reserve(header.tensors.size());
  for (auto& [name, entry] : header.tensors) {
    const auto needed = shape_bytes(entry.shape, dtype_bytes(entry.dtype));
    if (!needed) return bad_tensor(file_name, name, "has a shape whose size overflows");
    if (entry.begin > entry.end)
      return bad_tensor(file_name, name, "begins at " + std::to_string(entry.begin) + ", after its end at " + std::to_string(entry.end));
    if (entry.end > buffer_bytes)
      return bad_tensor(file_name, name, "ends at " + std::to_string(entry.end) + " but the file's data has " + std::to_string(buffer_bytes) + " bytes");
    if (entry.end - entry.begin != *needed)
      return bad_tensor(file_name, name, "has " + std::to_string(entry.end - entry.begin) + " bytes but its shape needs " + std::to_string(*needed));
    const auto [at, fresh] = tensors.emplace(name, TensorView{name, entry.dtype, std::move(entry.shape), buffer + entry.begin, std::size_t(*needed)});
    ranges.push_back({entry.begin, entry.end, &at->first});
  }
  LOCKSTEP_TRY(check_cover(std::move(ranges), buffer_bytes, file_name));
  if (metadata) *metadata = std::move(header.metadata);
  return tensors;
}

Result<SafetensorsFile> open_safetensors(const std::filesystem::path& path) {
  SafetensorsFile out;
  LOCKSTEP_ASSIGN(out.file, MappedFile::open(path));
  LOCKSTEP_ASSIGN(out.tensors, parse_safetensors({out.file->data(), out.file->size()}, path.string(), &out.metadata));
  return out;
}

}  // namespace lockstep::checkpoint
