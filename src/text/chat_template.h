// Chat template of a checkpoint: the file's own Jinja text, rendered by minijinja as transformers does (models.md 10.1).
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/tokenizer.h"

namespace lockstep::text {

/// Put into a spelling of an added token inside message text before rendering (after its first character), so that the encoder does not
/// take it for the token. A Unicode noncharacter; removed from message text that contains it.
inline constexpr std::string_view kPlainMark = "\xEF\xB7\x90";  // U+FDD0

/// Message text with kPlainMark after the first character of every spelling of an added token, and of the beginning of one at its end (the
/// next text could complete it); marks already there are dropped, invalid UTF-8 becomes U+FFFD. `keep_think_tags` (assistant messages)
/// leaves <think> and </think> alone: the template must still find its think block. Added tokens of white space alone are text, and one
/// of a single character cannot be marked.
std::string mark_plain(const Tokenizer& tokenizer, std::string_view text, bool keep_think_tags);

class ChatTemplate {
 public:
  /// chat_template.jinja, else chat_template.json, else chat_template in tokenizer_config.json (string, or list of {name, template}:
  /// "default"). A broken template is an error here, not at the first request. kNotFound if the folder has none.
  static Result<std::shared_ptr<const ChatTemplate>> load(const std::filesystem::path& folder, std::shared_ptr<const Tokenizer> tokenizer);
  ~ChatTemplate();

  /// `variables_json`: an object with messages and optionally tools, add_generation_prompt and every template keyword
  /// (enable_thinking ...), as the template sees them: key order, big integers and floats as Python has them. The special tokens of
  /// tokenizer_config.json (bos_token ...) are there too. An exception raised by the template is kInvalidArgument with its own words, any
  /// other failure of it kInvalidArgument with its file and line. Work, output (16 MiB) and depth of recursion are bounded, the error
  /// says so; only containers that a template builds out of themselves escape the bound on work.
  Result<std::string> render(std::string_view variables_json) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::text
