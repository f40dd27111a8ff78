#include "server/openai/messages.h"

#include <boost/json/object.hpp>
#include <boost/json/string.hpp>

#include "server/json_text.h"

namespace lockstep::server::openai {
namespace json = boost::json;
namespace {

std::string_view view(const json::string& s) { return {s.data(), s.size()}; }
std::string quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text.substr(0, 64));
  return out;
}
Error invalid(std::string where, std::string_view words) { return {ErrorCode::kInvalidArgument, where + ' ' + std::string(words), std::move(where)}; }

// Content as one string.
Result<std::string> read_content(const json::value& content, const std::string& where) {
  if (content.is_null()) return std::string();
  if (content.is_string()) return std::string(view(content.get_string()));
  if (!content.is_array()) return invalid(where, "must be a string, null or an array of parts");
  std::string text;
  const auto& parts = content.get_array();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string part = where + '[' + std::to_string(i) + ']';
    if (parts[i].is_string()) {
      text += view(parts[i].get_string());
      continue;
    }
    const json::object* object = parts[i].if_object();
    if (!object) return invalid(part, "must be an object with a type");
    const json::value* type = object->if_contains("type");
    const std::string_view kind = type && type->is_string() ? view(type->get_string()) : object->if_contains("text") && !type ? "text" : "";
    if (kind.empty()) return invalid(part + ".type", "must be a string such as \"text\"");
    const bool is_text = kind == "text" || kind == "input_text" || kind == "output_text";
    if (!is_text && kind != "refusal") {
      return Error{ErrorCode::kUnsupported, part + " is of type " + quoted(kind) + "; this model reads text only", part + ".type"};
    }
    const std::string_view member = is_text ? "text" : "refusal";
    const json::value* value = object->if_contains(json::string_view(member.data(), member.size()));
    if (!value || !value->is_string()) return invalid(part + '.' + std::string(member), "must be a string");
    text += view(value->get_string());
  }
  return text;
}

// A function's name and arguments: {"name", "arguments" as an object}.
Result<json::object> read_function(const json::value& function, const std::string& where, const MessageOptions& options, BoundedMemory& memory) {
  const json::storage_ptr storage(&memory);
  const json::object* object = function.if_object();
  if (!object) return invalid(where, "must be an object with name and arguments");
  const json::value* name = object->if_contains("name");
  if (!name || !name->is_string()) return invalid(where + ".name", "must be a string");
  json::object out(*object, storage);
  const std::string at = where + ".arguments";
  const json::value* arguments = object->if_contains("arguments");
  if (!arguments || arguments->is_null()) {
    out["arguments"] = json::object(storage);
  } else if (arguments->is_string()) {
    const std::string_view text = view(arguments->get_string());
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
      out["arguments"] = json::object(storage);
    } else {
      auto parsed = parse_json(text, at, options.json_depth, memory);
      if (!parsed.ok()) return Error{parsed.error().code, parsed.error().message, at};
      if (!parsed->is_object()) return invalid(at, "must hold a JSON object");
      out["arguments"] = std::move(*parsed);
    }
  } else if (!arguments->is_object()) {
    return invalid(at, "must be a JSON object, or one in a string");
  }
  return out;
}

Result<json::array> read_tool_calls(const json::value& calls, const std::string& where, const MessageOptions& options, BoundedMemory& memory) {
  const json::storage_ptr storage(&memory);
  if (!calls.is_array()) return invalid(where, "must be an array");
  json::array out(storage);
  const auto& list = calls.get_array();
  for (std::size_t j = 0; j < list.size(); ++j) {
    const std::string at = where + '[' + std::to_string(j) + ']';
    const json::object* call = list[j].if_object();
    if (!call) return invalid(at, "must be an object");
    const json::value* function = call->if_contains("function");
    if (!function) return invalid(at + ".function", "must be an object with name and arguments");
    LOCKSTEP_ASSIGN(json::object read, read_function(*function, at + ".function", options, memory));
    json::object copy(*call, storage);
    copy["function"] = std::move(read);
    out.push_back(std::move(copy));
  }
  return out;
}

// A think block that a client left inside an assistant's text, as the templates themselves take it apart: reasoning is what stands
// between the last <think> before the first </think> and that tag, the reply what follows the last </think> without leading newlines.
void split_thinking(std::string& content, json::object& message) {
  constexpr std::string_view kOpen = "<think>", kClose = "</think>";
  const auto close = content.find(kClose);
  if (close == std::string::npos) return;
  std::string reasoning = content.substr(0, close);
  if (const auto open = reasoning.rfind(kOpen); open != std::string::npos) reasoning.erase(0, open + kOpen.size());
  const auto trim = [](std::string& s, std::string_view set, bool tail) {
    s.erase(0, std::min(s.size(), s.find_first_not_of(set)));
    if (tail) s.erase(s.find_last_not_of(set) + 1);
  };
  trim(reasoning, "\n", true);
  content.erase(0, content.rfind(kClose) + kClose.size());
  trim(content, "\n", false);
  message["reasoning_content"] = reasoning;
}

Result<json::object> read_message(const json::value& value, const std::string& where, const MessageOptions& options, BoundedMemory& memory) {
  const json::storage_ptr storage(&memory);
  const json::object* given = value.if_object();
  if (!given) return invalid(where, "must be an object with role and content");
  json::object message(*given, storage);
  const json::value* role = given->if_contains("role");
  if (!role || !role->is_string()) return invalid(where + ".role", "must be a string");
  if (role->get_string() == "developer") message["role"] = "system";

  std::string content;
  if (const json::value* found = given->if_contains("content")) {
    LOCKSTEP_ASSIGN(content, read_content(*found, where + ".content"));
  }

  for (const char* name : {"reasoning_content", "reasoning"}) {
    const json::value* reasoning = given->if_contains(name);
    if (!reasoning) continue;
    if (!reasoning->is_null() && !reasoning->is_string()) return invalid(where + '.' + name, "must be a string or null");
    if (reasoning->is_null()) message.erase(name);
  }
  if (message.if_contains("reasoning") && !message.if_contains("reasoning_content")) {
    json::value reasoning = message["reasoning"];
    message["reasoning_content"] = std::move(reasoning);
    message.erase("reasoning");
  }
  if (options.split_thinking && role->get_string() == "assistant" && !message.if_contains("reasoning_content")) split_thinking(content, message);
  message["content"] = content;

  if (const json::value* calls = given->if_contains("tool_calls")) {
    if (calls->is_null()) {
      message.erase("tool_calls");
    } else {
      LOCKSTEP_ASSIGN(json::array read, read_tool_calls(*calls, where + ".tool_calls", options, memory));
      message["tool_calls"] = std::move(read);
    }
  }
  if (const json::value* call = given->if_contains("function_call")) {
    if (!call->is_null() && !message.if_contains("tool_calls")) {
      LOCKSTEP_ASSIGN(json::object read, read_function(*call, where + ".function_call", options, memory));
      json::object whole(storage);
      whole["type"] = "function";
      whole["function"] = std::move(read);
      message["tool_calls"] = json::array({std::move(whole)}, storage);
    }
    message.erase("function_call");
  }
  return message;
}

}  // namespace

json::value mark_value(const json::value& value, const MarkPlain& mark, const json::storage_ptr& memory) {
  if (const auto* text = value.if_string()) {
    const std::string marked = mark(view(*text));
    return json::value(json::string_view(marked), memory);
  }
  if (const auto* array = value.if_array()) {
    json::array out(memory);
    out.reserve(array->size());
    for (const auto& element : *array) out.push_back(mark_value(element, mark, memory));
    return out;
  }
  if (const auto* object = value.if_object()) {
    json::object out(memory);
    out.reserve(object->size());
    for (const auto& member : *object) {
      const std::string key = mark(std::string_view(member.key().data(), member.key().size()));
      out[key] = mark_value(member.value(), mark, memory);
    }
    return out;
  }
  return json::value(value, memory);
}

Result<json::array> read_messages(const json::value& messages, const MessageOptions& options, const MarkPlain& mark, BoundedMemory& memory,
                                  std::string_view name) {
  const std::string path(name);
  const json::storage_ptr storage(&memory);
  if (!messages.is_array()) return invalid(path, "must be an array of messages");
  const auto& list = messages.get_array();
  if (list.empty()) return invalid(path, "must not be empty");
  json::array out(storage);
  out.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    LOCKSTEP_ASSIGN(json::object message, read_message(list[i], path + '[' + std::to_string(i) + ']', options, memory));
    out.push_back(mark_value(json::value(std::move(message)), mark, storage));
  }
  return out;
}

}  // namespace lockstep::server::openai
