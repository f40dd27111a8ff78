// A reply's tokens to text: whole UTF-8 characters only, stop strings, reasoning split from content (text_stream, stop_matcher,
// reply_parser behind one push).
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace lockstep::text {

struct ReplyTextOptions {
  bool split_reasoning = false;      // the model has think tokens and a chat asked: text before think_end goes to `reasoning`
  bool starts_in_reasoning = false;  // the prompt ends inside an open think block
  std::optional<std::int32_t> think_start, think_end;
  std::vector<std::string> stop;  // stop strings, matched on the text as sent (each channel for itself); none empty
};

class ReplyText {
 public:
  ReplyText(std::shared_ptr<const Tokenizer> tokenizer, ReplyTextOptions options);
  ~ReplyText();
  ReplyText(ReplyText&&) noexcept;

  struct Delta {
    std::string reasoning, content;  // valid UTF-8; either or both may be empty
    bool stopped = false;            // this token completed a stop string: text before it is out, nothing follows
    std::string stop;                // the string that matched
  };
  /// One token of the reply. Special tokens add no text. Text that may be the start of a stop string or of a character is held back.
  Delta push(std::int32_t id);
  /// The reply ended without a stop string: everything held back (an incomplete character as U+FFFD).
  Delta finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::text
