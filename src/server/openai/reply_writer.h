// A reply on the wire: one JSON body, or the chunks of a stream, for chat completions and completions, of one choice or several.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"

namespace lockstep::server::openai {

struct ReplyShape {
  bool chat = true;
  bool stream = false, include_usage = false, return_token_ids = false;
  int choices = 1;
  std::string reply_id;  // chatcmpl-... or cmpl-...
  std::string model;     // served name
  std::string fingerprint;
  std::int64_t created = 0;              // seconds since 1970
  std::vector<std::int32_t> prompt_ids;  // filled with return_token_ids only
  bool split_reasoning = false, starts_in_reasoning = false;
  std::optional<std::int32_t> think_start, think_end;
};

class ReplyWriter {
 public:
  explicit ReplyWriter(ReplyShape shape);

  /// Takes the next event. A stream's chunks are appended to `out` (a choice's first one gives the role, the last finish is followed by
  /// "[DONE]"); without a stream the whole body is appended at the last finish. Not for a finish that failed.
  void push(const engine::Event& event, std::string& out);

  /// The error event that ends a stream.
  void fail(std::string_view error_json, std::string& out);

  bool stream() const { return shape_.stream; }

 private:
  struct Choice {
    bool opened = false;
    std::vector<std::int32_t> ids;    // stream: not yet sent; else: all
    std::string reasoning, content;   // not of a stream
    std::optional<engine::Finish> finish;
    bool in_reasoning = false, reasoning_over = false;
  };

  void head(std::string& out, bool chunk) const;  // {"id":...,"system_fingerprint":...
  void begin_chunk(int choice, std::string& out) const;
  void end_chunk(Choice& choice, std::string_view finish_reason, std::string& out) const;
  void role_chunk(int index, std::string& out);
  void text_chunk(const engine::Event& event, std::string& out);
  void finish_chunk(int index, std::string& out);
  void usage_chunk(std::string& out) const;
  void whole_body(std::string& out) const;
  void whole_choice(int index, std::string& out) const;
  void usage(std::string& out) const;
  static void receipt(const engine::Finish& finish, std::string& out);
  void count_reasoning(Choice& choice, const std::vector<std::int32_t>& ids);

  ReplyShape shape_;
  std::string chunk_head_;
  std::vector<Choice> choices_;
  int unfinished_;
  bool prompt_sent_ = false;
  std::int64_t reasoning_tokens_ = 0;
};

}  // namespace lockstep::server::openai
