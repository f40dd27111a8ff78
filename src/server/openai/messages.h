// Messages as clients send them to messages as templates want them.
#pragma once
#include <boost/json/array.hpp>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/json_input.h"

namespace lockstep::server::openai {

/// Marks spellings of control tokens in a client's text as plain text (text::mark_plain with the model's tokenizer).
using MarkPlain = std::function<std::string(std::string_view text)>;

struct MessageOptions {
  bool split_thinking = false;  // the model has think tokens: an assistant's text with a closed think block becomes reasoning_content
  int json_depth = 64;          // of tool-call arguments given as a string
};

/// Checks `messages` and rewrites them:
/// - content: a string; null or absent is ""; an array of text (and refusal) parts is concatenated; any other part is refused by its type.
/// - role "developer" is "system"; roles that nobody knows go to the template, whose words are the error.
/// - tool_calls[].function.arguments given as a string are parsed ("" is {}); a legacy function_call becomes one tool call.
/// - reasoning_content stays; `reasoning` takes its name where it is absent.
/// - every string of a message, and every key below its own members, is marked plain; all other members pass as they are.
/// `name` is the path for errors ("messages"). New values live in `memory`.
Result<boost::json::array> read_messages(const boost::json::value& messages, const MessageOptions& options, const MarkPlain& mark,
                                         BoundedMemory& memory, std::string_view name = "messages");

/// Copies `value` with every string, and every object key, marked plain.
boost::json::value mark_value(const boost::json::value& value, const MarkPlain& mark, const boost::json::storage_ptr& memory);

}  // namespace lockstep::server::openai
