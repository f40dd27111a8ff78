#include "text/reply_parser.h"

#include <cstddef>

namespace lockstep::text {
namespace {

/// White space of more than one byte, in UTF-8: U+0085, U+00A0, U+1680, U+2000 to U+200A, U+2028, U+2029, U+202F, U+205F, U+3000.
bool is_wide_space(std::string_view c) {
  if (c == "\xC2\x85" || c == "\xC2\xA0" || c == "\xE1\x9A\x80" || c == "\xE2\x81\x9F" || c == "\xE3\x80\x80") return true;
  if (c.size() != 3 || c.substr(0, 2) != "\xE2\x80") return false;
  const auto last = std::uint8_t(c[2]);
  return (last >= 0x80 && last <= 0x8A) || last == 0xA8 || last == 0xA9 || last == 0xAF;
}
bool is_narrow_space(char c) { return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F); }

}  // namespace

std::size_t leading_space_bytes(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (is_narrow_space(text[at])) {
      at += 1;
    } else if (is_wide_space(text.substr(at, 2))) {
      at += 2;
    } else if (is_wide_space(text.substr(at, 3))) {
      at += 3;
    } else {
      break;
    }
  }
  return at;
}

std::size_t trailing_space_bytes(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    if (is_narrow_space(text[end - 1])) {
      end -= 1;
    } else if (end >= 2 && is_wide_space(text.substr(end - 2, 2))) {
      end -= 2;
    } else if (end >= 3 && is_wide_space(text.substr(end - 3, 3))) {
      end -= 3;
    } else {
      break;
    }
  }
  return text.size() - end;
}

ReplyParser::ReplyParser(bool split, bool starts_in_reasoning, std::optional<std::int32_t> think_start,
                         std::optional<std::int32_t> think_end)
    : split_(split), in_reasoning_(split && starts_in_reasoning), think_start_(think_start), think_end_(think_end) {}

ReplyPart ReplyParser::place(std::int32_t id, std::string_view bytes) {
  if (!split_) return ReplyPart::kContent;
  if (in_reasoning_ && id == think_end_) {
    in_reasoning_ = start_may_come_ = false;
    return ReplyPart::kBorder;
  }
  if (start_may_come_ && id == think_start_) {
    in_reasoning_ = true;
    start_may_come_ = false;
    return ReplyPart::kBorder;
  }
  // Reasoning is trimmed, so white space before a repeated tag never shows; content is not.
  if (!bytes.empty() && !(in_reasoning_ && leading_space_bytes(bytes) == bytes.size())) start_may_come_ = false;
  return in_reasoning_ ? ReplyPart::kReasoning : ReplyPart::kContent;
}

}  // namespace lockstep::text
