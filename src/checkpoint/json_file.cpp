#include "checkpoint/json_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_stack.hpp>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

namespace lockstep::checkpoint {
namespace {

namespace json = boost::json;
using json::error_code;
using json::string_view;

/// Builds a value, and keeps the keys of the objects that are open so that a duplicate is seen.
class Builder {
 public:
  static constexpr std::size_t max_object_size = 1u << 20, max_array_size = 1u << 22, max_key_size = 4096, max_string_size = 1u << 22;

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) {
    keys_.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t n, error_code&) {
    keys_.pop_back();
    stack_.push_object(n);
    return true;
  }
  bool on_array_begin(error_code&) { return true; }
  bool on_array_end(std::size_t n, error_code&) {
    stack_.push_array(n);
    return true;
  }
  bool on_key_part(string_view s, std::size_t, error_code&) {
    key_.append(s.data(), s.size());
    stack_.push_chars(s);
    return true;
  }
  bool on_key(string_view s, std::size_t, error_code& ec) {
    key_.append(s.data(), s.size());
    stack_.push_key(s);
    if (!keys_.back().insert(key_).second) {
      duplicate_ = key_;
      ec = json::error::extra_data;  // any code: it only ends the parse
      return false;
    }
    key_.clear();
    return true;
  }
  bool on_string_part(string_view s, std::size_t, error_code&) {
    stack_.push_chars(s);
    return true;
  }
  bool on_string(string_view s, std::size_t, error_code&) {
    stack_.push_string(s);
    return true;
  }
  bool on_number_part(string_view, error_code&) { return true; }
  bool on_int64(std::int64_t i, string_view, error_code&) {
    stack_.push_int64(i);
    return true;
  }
  bool on_uint64(std::uint64_t u, string_view, error_code&) {
    stack_.push_uint64(u);
    return true;
  }
  bool on_double(double d, string_view, error_code&) {
    stack_.push_double(d);
    return true;
  }
  bool on_bool(bool b, error_code&) {
    stack_.push_bool(b);
    return true;
  }
  bool on_null(error_code&) {
    stack_.push_null();
    return true;
  }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }

  json::value release() { return stack_.release(); }
  void reset() { stack_.reset(); }
  const std::optional<std::string>& duplicate() const { return duplicate_; }

 private:
  json::value_stack stack_;
  std::vector<std::set<std::string>> keys_;
  std::string key_;
  std::optional<std::string> duplicate_;
};

}  // namespace

std::string printable(std::string_view text, std::size_t limit) {
  std::string out;
  for (unsigned char c : text) {
    if (out.size() >= limit) return out + "...";
    if (c >= 0x20 && c < 0x7f) {
      out += char(c);
    } else {
      out += "\\x";
      out += "0123456789abcdef"[c >> 4];
      out += "0123456789abcdef"[c & 15];
    }
  }
  return out;
}

std::string shown(const json::value& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list of " + std::to_string(value.get_array().size());
  return printable(json::serialize(value), 80);
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t limit_bytes) {
  const std::string name = path.string();
  const int fd = ::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Error{errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, name + ": " + std::strerror(errno), name};
  struct Closer {
    int fd;
    ~Closer() { ::close(fd); }
  } closer{fd};
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Error{ErrorCode::kIo, name + ": " + std::strerror(errno), name};
  if (!S_ISREG(info.st_mode)) return Error{ErrorCode::kIo, name + ": is not a regular file", name};
  if (std::uint64_t(info.st_size) > limit_bytes)
    return Error{ErrorCode::kCorruptFile, name + ": has " + std::to_string(info.st_size) + " bytes; the limit is " + std::to_string(limit_bytes), name};
  std::string text(std::size_t(info.st_size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::read(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error{ErrorCode::kIo, name + ": " + std::strerror(errno), name};
    if (n == 0) break;
    done += std::size_t(n);
  }
  text.resize(done);
  return text;
}

Result<json::object> parse_json_object(std::string_view text, const std::string& file) {
  json::parse_options options;
  options.max_depth = kJsonDepth;
  json::basic_parser<Builder> parser(options);
  parser.handler().reset();
  error_code ec;
  const std::size_t used = parser.write_some(false, text.data(), text.size(), ec);
  if (const auto& key = parser.handler().duplicate())
    return Error{ErrorCode::kCorruptFile, file + ": the key \"" + printable(*key) + "\" appears twice", *key};
  if (ec) return Error{ErrorCode::kCorruptFile, file + ": is not valid JSON at byte " + std::to_string(used) + ": " + ec.message(), file};
  if (used != text.size()) return Error{ErrorCode::kCorruptFile, file + ": has text after its JSON value at byte " + std::to_string(used), file};
  json::value value = parser.handler().release();
  if (!value.is_object()) return Error{ErrorCode::kCorruptFile, file + ": is not a JSON object", file};
  return std::move(value.get_object());
}

Error Fields::error(ErrorCode code, std::string_view key, const std::string& words) const {
  return {code, file_ + ": " + printable(path(key)) + " " + words, path(key)};
}

const json::value* Fields::find(std::string_view key) const {
  const auto it = object_->find(json::string_view(key.data(), key.size()));
  return it == object_->end() || it->value().is_null() ? nullptr : &it->value();
}

Result<std::optional<std::int64_t>> Fields::integer(std::string_view key, std::int64_t low, std::int64_t high) const {
  const json::value* v = find(key);
  if (!v) return std::optional<std::int64_t>{};
  if (!v->is_int64() || v->get_int64() < low || v->get_int64() > high)
    return wrong(key, "is " + shown(*v) + "; it must be a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  return std::optional<std::int64_t>{v->get_int64()};
}

Result<std::optional<double>> Fields::number(std::string_view key, double low, double high) const {
  const json::value* v = find(key);
  if (!v) return std::optional<double>{};
  const double d = v->is_int64() ? double(v->get_int64()) : v->is_uint64() ? double(v->get_uint64()) : v->is_double() ? v->get_double() : NAN;
  if (!(d >= low && d <= high)) {
    char range[80];
    std::snprintf(range, sizeof range, "%g to %g", low, high);
    return wrong(key, "is " + shown(*v) + "; it must be a number from " + range);
  }
  return std::optional<double>{d};
}

Result<std::optional<bool>> Fields::boolean(std::string_view key) const {
  const json::value* v = find(key);
  if (!v) return std::optional<bool>{};
  if (!v->is_bool()) return wrong(key, "is " + shown(*v) + "; it must be true or false");
  return std::optional<bool>{v->get_bool()};
}

Result<std::optional<std::string>> Fields::string(std::string_view key) const {
  const json::value* v = find(key);
  if (!v) return std::optional<std::string>{};
  if (!v->is_string()) return wrong(key, "is " + shown(*v) + "; it must be a string");
  return std::optional<std::string>{std::string(v->get_string().data(), v->get_string().size())};
}

Result<std::optional<Fields>> Fields::object(std::string_view key) const {
  const json::value* v = find(key);
  if (!v) return std::optional<Fields>{};
  if (!v->is_object()) return wrong(key, "is " + shown(*v) + "; it must be an object");
  return std::optional<Fields>{Fields(v->get_object(), file_, path(key))};
}

Result<std::int64_t> Fields::required_integer(std::string_view key, std::int64_t low, std::int64_t high) const {
  LOCKSTEP_ASSIGN(const std::optional<std::int64_t> v, integer(key, low, high));
  if (!v) return wrong(key, "is missing");
  return *v;
}

Result<double> Fields::required_number(std::string_view key, double low, double high) const {
  LOCKSTEP_ASSIGN(const std::optional<double> v, number(key, low, high));
  if (!v) return wrong(key, "is missing");
  return *v;
}

}  // namespace lockstep::checkpoint
