// JSON as text: replies and stream chunks are written straight into a string, no tree for a token.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::server {

/// Appends `utf8` in quotes, escaped. Bytes that are not UTF-8 become U+FFFD, so the output is always valid.
void append_json_string(std::string& out, std::string_view utf8);

/// Appends JSON members to a string; commas follow from what stands before.
class JsonText {
 public:
  explicit JsonText(std::string& out) : out_(out) {}

  JsonText& open_object();                      // { (an element: with its comma)
  JsonText& open_object(std::string_view key);  // "key":{
  JsonText& close_object();
  JsonText& open_array(std::string_view key);
  JsonText& close_array();

  JsonText& text(std::string_view key, std::string_view utf8);
  JsonText& number(std::string_view key, std::int64_t value);
  JsonText& real(std::string_view key, double value);  // not finite: null
  JsonText& boolean(std::string_view key, bool value);
  JsonText& null(std::string_view key);
  JsonText& ids(std::string_view key, std::span<const std::int32_t> values);
  /// A value that is JSON already.
  JsonText& raw(std::string_view key, std::string_view json);

  /// Array elements.
  JsonText& element(std::string_view utf8);

 private:
  void comma();
  void key(std::string_view name);
  std::string& out_;
};

}  // namespace lockstep::server
