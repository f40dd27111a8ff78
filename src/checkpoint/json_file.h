// JSON of a checkpoint's small files: strict grammar and UTF-8, bounded bytes and depth, no duplicate keys; and typed, range-checked fields.
#pragma once
#include <boost/json/object.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep::checkpoint {

inline constexpr int kJsonDepth = 32;

/// Whole text of a regular file; an error names the path. kNotFound where there is none.
Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t limit_bytes);

/// The object that `text` is. `file` names it in errors. Refuses duplicate keys, which Boost.JSON alone would drop.
Result<boost::json::object> parse_json_object(std::string_view text, const std::string& file);

/// Fields of one object; a key's path ("text_config.hidden_size") is the subject of its errors. null counts as absent.
class Fields {
 public:
  Fields(const boost::json::object& object, std::string file, std::string path = {})
      : object_(&object), file_(std::move(file)), path_(std::move(path)) {}

  const boost::json::value* find(std::string_view key) const;
  Result<std::optional<std::int64_t>> integer(std::string_view key, std::int64_t low, std::int64_t high) const;
  /// Any finite number in [low, high].
  Result<std::optional<double>> number(std::string_view key, double low, double high) const;
  Result<std::optional<bool>> boolean(std::string_view key) const;
  Result<std::optional<std::string>> string(std::string_view key) const;
  Result<std::optional<Fields>> object(std::string_view key) const;

  /// As above, for keys that must be there.
  Result<std::int64_t> required_integer(std::string_view key, std::int64_t low, std::int64_t high) const;
  Result<double> required_number(std::string_view key, double low, double high) const;

  std::string path(std::string_view key) const { return path_.empty() ? std::string(key) : path_ + "." + std::string(key); }
  /// "config.json: KEY ..." with the key's path as subject.
  Error error(ErrorCode code, std::string_view key, const std::string& words) const;
  Error wrong(std::string_view key, const std::string& words) const { return error(ErrorCode::kCorruptFile, key, words); }
  Error unsupported(std::string_view key, const std::string& words) const { return error(ErrorCode::kUnsupported, key, words); }
  const boost::json::object& json() const { return *object_; }

 private:
  const boost::json::object* object_;
  std::string file_, path_;
};

/// A JSON value for a message, at most 80 bytes.
std::string shown(const boost::json::value& value);
/// Foreign text for a message: control bytes and bytes that are not UTF-8 text escaped, at most `limit` bytes.
std::string printable(std::string_view text, std::size_t limit = 200);

}  // namespace lockstep::checkpoint
