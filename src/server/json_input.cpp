#include "server/json_input.h"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>
#include <cmath>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "server/json_text.h"

namespace lockstep::server {
namespace json = boost::json;
namespace {

// Builds the value as json::parser does, counts keys and refuses infinities (1e999).
struct TreeHandler {
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();

  json::value_stack stack;
  std::size_t keys = 0;
  bool not_finite = false;

  explicit TreeHandler(json::storage_ptr memory) : stack(memory) { stack.reset(memory); }

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code&) { return true; }
  bool on_object_end(std::size_t n, json::error_code&) {
    keys += n;
    stack.push_object(n);
    return true;
  }
  bool on_array_begin(json::error_code&) { return true; }
  bool on_array_end(std::size_t n, json::error_code&) {
    stack.push_array(n);
    return true;
  }
  bool on_key_part(json::string_view s, std::size_t, json::error_code&) {
    stack.push_chars(s);
    return true;
  }
  bool on_key(json::string_view s, std::size_t, json::error_code&) {
    stack.push_key(s);
    return true;
  }
  bool on_string_part(json::string_view s, std::size_t, json::error_code&) {
    stack.push_chars(s);
    return true;
  }
  bool on_string(json::string_view s, std::size_t, json::error_code&) {
    stack.push_string(s);
    return true;
  }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(std::int64_t i, json::string_view, json::error_code&) {
    stack.push_int64(i);
    return true;
  }
  bool on_uint64(std::uint64_t u, json::string_view, json::error_code&) {
    stack.push_uint64(u);
    return true;
  }
  bool on_double(double d, json::string_view, json::error_code& ec) {
    if (!std::isfinite(d)) {
      not_finite = true;
      ec = json::make_error_code(json::error::exponent_overflow);
      return false;
    }
    stack.push_double(d);
    return true;
  }
  bool on_bool(bool b, json::error_code&) {
    stack.push_bool(b);
    return true;
  }
  bool on_null(json::error_code&) {
    stack.push_null();
    return true;
  }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }
};

// Second pass of a document known to have a duplicate: its name.
struct DuplicateHandler {
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();

  std::vector<std::set<std::string>> open;
  std::string part, duplicate;

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code&) {
    open.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t, json::error_code&) {
    open.pop_back();
    return true;
  }
  bool on_array_begin(json::error_code&) { return true; }
  bool on_array_end(std::size_t, json::error_code&) { return true; }
  bool on_key_part(json::string_view s, std::size_t, json::error_code&) {
    part.append(s.data(), s.size());
    return true;
  }
  bool on_key(json::string_view s, std::size_t, json::error_code& ec) {
    part.append(s.data(), s.size());
    if (!open.back().insert(part).second) {
      duplicate = part;
      ec = json::make_error_code(json::error::syntax);
      return false;
    }
    part.clear();
    return true;
  }
  bool on_string_part(json::string_view, std::size_t, json::error_code&) { return true; }
  bool on_string(json::string_view, std::size_t, json::error_code&) { return true; }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(std::int64_t, json::string_view, json::error_code&) { return true; }
  bool on_uint64(std::uint64_t, json::string_view, json::error_code&) { return true; }
  bool on_double(double, json::string_view, json::error_code&) { return true; }
  bool on_bool(bool, json::error_code&) { return true; }
  bool on_null(json::error_code&) { return true; }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }
};

std::size_t count_keys(const json::value& value) {
  std::size_t n = 0;
  if (const auto* object = value.if_object()) {
    n += object->size();
    for (const auto& member : *object) n += count_keys(member.value());
  } else if (const auto* array = value.if_array()) {
    for (const auto& element : *array) n += count_keys(element);
  }
  return n;
}

std::string duplicate_key(std::string_view text, const json::parse_options& options) {
  json::basic_parser<DuplicateHandler> parser(options);
  json::error_code ec;
  parser.write_some(false, text.data(), text.size(), ec);
  std::string shown;
  append_json_string(shown, std::string_view(parser.handler().duplicate).substr(0, 100));
  return shown;
}

Error syntax_error(std::string_view subject, std::size_t at, const json::error_code& ec, bool not_finite, int depth) {
  std::string words;
  if (not_finite) words = "a number is too large for a double";
  else if (ec == json::error::too_deep) words = "arrays and objects are nested deeper than " + std::to_string(depth);
  else words = ec.message();
  return {ErrorCode::kInvalidArgument, std::string(subject) + " is not valid JSON: " + words + " (at byte " + std::to_string(at) + ")", ""};
}

}  // namespace

// JSON values need no more than the default alignment, and the library gives keys back with another one than it asked for.
void* BoundedMemory::do_allocate(std::size_t bytes, std::size_t) {
  if (bytes > left_bytes_) throw std::bad_alloc();
  void* p = ::operator new(bytes);
  left_bytes_ -= bytes;
  return p;
}
void BoundedMemory::do_deallocate(void* p, std::size_t bytes, std::size_t) {
  ::operator delete(p);
  left_bytes_ += bytes;
}

Result<json::value> parse_json(std::string_view text, std::string_view subject, int depth, BoundedMemory& memory) {
  json::parse_options options;
  options.max_depth = static_cast<std::size_t>(depth);
  try {
    const json::storage_ptr storage(&memory);
    json::basic_parser<TreeHandler> parser(options, storage);
    json::error_code ec;
    const std::size_t used = parser.write_some(false, text.data(), text.size(), ec);
    const bool not_finite = parser.handler().not_finite;
    if (!ec && used < text.size()) ec = json::make_error_code(json::error::extra_data);
    if (ec) return syntax_error(subject, used, ec, not_finite, depth);
    json::value value = parser.handler().stack.release();
    if (count_keys(value) != parser.handler().keys) {
      return Error{ErrorCode::kInvalidArgument, std::string(subject) + " has the key " + duplicate_key(text, options) + " twice in one object", ""};
    }
    return value;
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kDoesNotFit, std::string(subject) + " has too many values to hold in memory", ""};
  }
}

}  // namespace lockstep::server
