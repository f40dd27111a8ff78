#include "server/json_text.h"

#include <charconv>
#include <cmath>

namespace lockstep::server {
namespace {

// Length of the valid UTF-8 character at text[at], 0 if there is none (RFC 3629: no overlong forms, no surrogates, at most U+10FFFF).
std::size_t character_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned a = byte(at), b = byte(at + 1);
  if (a < 0x80) return 1;
  if (a >= 0xC2 && a <= 0xDF) return tail(at + 1) ? 2 : 0;
  if (a >= 0xE0 && a <= 0xEF) {
    if (!tail(at + 1) || !tail(at + 2)) return 0;
    if ((a == 0xE0 && b < 0xA0) || (a == 0xED && b > 0x9F)) return 0;
    return 3;
  }
  if (a >= 0xF0 && a <= 0xF4) {
    if (!tail(at + 1) || !tail(at + 2) || !tail(at + 3)) return 0;
    if ((a == 0xF0 && b < 0x90) || (a == 0xF4 && b > 0x8F)) return 0;
    return 4;
  }
  return 0;
}

void append_escape(std::string& out, unsigned char c) {
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  constexpr char kHex[] = "0123456789abcdef";
  out += "\\u00";
  out += kHex[c >> 4];
  out += kHex[c & 15];
}

template <class T>
void append_number(std::string& out, T value) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  out.append(digits, end);
}

}  // namespace

void append_json_string(std::string& out, std::string_view utf8) {
  out += '"';
  std::size_t plain = 0;  // start of the run that needs no change
  for (std::size_t i = 0; i < utf8.size();) {
    const auto c = static_cast<unsigned char>(utf8[i]);
    if (c >= 0x20 && c < 0x7F && c != '"' && c != '\\') {
      ++i;
      continue;
    }
    const std::size_t length = c < 0x80 ? 1 : character_length(utf8, i);
    if (c >= 0x80 && length > 0) {
      i += length;
      continue;
    }
    out.append(utf8, plain, i - plain);
    if (c < 0x80) append_escape(out, c);
    else out += "\xEF\xBF\xBD";
    plain = ++i;
  }
  out.append(utf8, plain, utf8.size() - plain);
  out += '"';
}

void JsonText::comma() {
  // A value ends in one of these; anything else before us ("{", "[", ":", the "data: " of a stream) takes no comma.
  if (out_.empty()) return;
  const char c = out_.back();
  if (c == '"' || c == '}' || c == ']' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z')) out_ += ',';
}
void JsonText::key(std::string_view name) {
  comma();
  append_json_string(out_, name);
  out_ += ':';
}

JsonText& JsonText::open_object() {
  comma();
  out_ += '{';
  return *this;
}
JsonText& JsonText::open_object(std::string_view name) {
  key(name);
  out_ += '{';
  return *this;
}
JsonText& JsonText::close_object() {
  out_ += '}';
  return *this;
}
JsonText& JsonText::open_array(std::string_view name) {
  key(name);
  out_ += '[';
  return *this;
}
JsonText& JsonText::close_array() {
  out_ += ']';
  return *this;
}
JsonText& JsonText::text(std::string_view name, std::string_view utf8) {
  key(name);
  append_json_string(out_, utf8);
  return *this;
}
JsonText& JsonText::number(std::string_view name, std::int64_t value) {
  key(name);
  append_number(out_, value);
  return *this;
}
JsonText& JsonText::real(std::string_view name, double value) {
  if (!std::isfinite(value)) return null(name);
  key(name);
  append_number(out_, value);
  return *this;
}
JsonText& JsonText::boolean(std::string_view name, bool value) { return raw(name, value ? "true" : "false"); }
JsonText& JsonText::null(std::string_view name) { return raw(name, "null"); }
JsonText& JsonText::ids(std::string_view name, std::span<const std::int32_t> values) {
  open_array(name);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out_ += ',';
    append_number(out_, values[i]);
  }
  return close_array();
}
JsonText& JsonText::raw(std::string_view name, std::string_view json) {
  key(name);
  out_ += json;
  return *this;
}
JsonText& JsonText::element(std::string_view utf8) {
  comma();
  append_json_string(out_, utf8);
  return *this;
}

}  // namespace lockstep::server
