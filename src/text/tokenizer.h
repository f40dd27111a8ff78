// Tokenizer of a checkpoint: the `tokenizers` crate behind the C ABI of text/, plus the bytes of every token for streaming. Thread-safe
// once loaded.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

struct lockstep_tokenizer;  // the crate's

namespace lockstep::text {

/// Byte-level and SentencePiece-style BPE. Other models, and files that would lose text or encode at random, are refused by name.
class Tokenizer {
 public:
  /// Reads tokenizer.json (and tokenizer_config.json for eos, bos; it may be absent) of `folder`. Errors name the file.
  static Result<std::shared_ptr<const Tokenizer>> load(const std::filesystem::path& folder);
  ~Tokenizer();

  /// Text as given: spellings of added tokens become those tokens; add_special_tokens runs the post-processor (BOS and the like).
  Result<std::vector<std::int32_t>> encode(std::string_view text, bool add_special_tokens) const;
  /// A rendered chat in which kPlainMark (chat_template.h) marks message text: spellings of added tokens that carry a mark are encoded
  /// as ordinary text, all others as tokens; marks are removed. No post-processor.
  Result<std::vector<std::int32_t>> encode_chat(std::string_view rendered) const;

  /// Text of ids, invalid UTF-8 replaced by U+FFFD (one for each longest beginning of a character). Ids out of range add nothing;
  /// added tokens add their literal text.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const;
  /// Bytes token `id` adds to a running text (empty for ids out of range). Concatenating them gives the text, but for the leading
  /// space of SentencePiece-style decoders: see strips_leading_space().
  std::string_view token_bytes(std::int32_t id) const;
  bool strips_leading_space() const;
  bool is_special(std::int32_t id) const;  // added token with special = true

  std::int32_t largest_id() const;  // ids above it are padding rows of the head
  std::optional<std::int32_t> id_of(std::string_view token) const;
  std::optional<std::int32_t> eos_id() const;  // tokenizer_config's eos_token
  std::optional<std::string> eos_token() const;
  std::optional<std::string> bos_token() const;

 private:
  friend class ChatTemplate;
  friend std::string mark_plain(const Tokenizer& tokenizer, std::string_view text, bool keep_think_tags);
  const lockstep_tokenizer* handle() const;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::text
