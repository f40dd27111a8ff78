// Which part of a reply a token belongs to: the border between reasoning and content is a token, so it is found by id, never in text.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::text {

enum class ReplyPart { kReasoning, kContent, kBorder };

class ReplyParser {
 public:
  /// Without `split` everything is content.
  ReplyParser(bool split, bool starts_in_reasoning, std::optional<std::int32_t> think_start, std::optional<std::int32_t> think_end);

  /// Where the text of token `id` goes. kBorder: nowhere. That is the first think_end of the reasoning, and one think_start before any
  /// other text: it opens the reasoning where the prompt did not.
  ReplyPart place(std::int32_t id, std::string_view bytes);
  bool in_reasoning() const { return in_reasoning_; }

 private:
  bool split_, in_reasoning_;
  bool start_may_come_ = true;
  std::optional<std::int32_t> think_start_, think_end_;
};

/// Bytes of white space at the start and end of valid UTF-8, as Python's str.strip() sees it.
std::size_t leading_space_bytes(std::string_view text);
std::size_t trailing_space_bytes(std::string_view text);

}  // namespace lockstep::text
