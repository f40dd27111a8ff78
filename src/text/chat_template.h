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

class ChatTemplate {
 public:
  /// chat_template.jinja, else chat_template.json, else chat_template in tokenizer_config.json (string, or list of {name, template}:
  /// "default"). A broken template is an error here, not at the first request. kNotFound if the folder has none.
  static Result<std::shared_ptr<const ChatTemplate>> load(const std::filesystem::path& folder, std::shared_ptr<const Tokenizer> tokenizer);
  ~ChatTemplate();

  /// `variables_json`: an object with messages and optionally tools, add_generation_prompt and every template keyword
  /// (enable_thinking ...), as the template sees them. An exception raised by the template is kInvalidArgument with its own words.
  Result<std::string> render(std::string_view variables_json) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::text
