#include "server/openai/tokenize_route.h"

#include <new>

#include "server/error_reply.h"
#include "server/json_text.h"
#include "server/openai/generate.h"
#include "server/openai/prompt.h"
#include "server/openai/request_fields.h"

namespace lockstep::server::openai {
namespace json = boost::json;
namespace {

using Body = Result<std::string>;

Result<bool> flag(const json::object& body, const char* name, bool fallback) {
  const json::value* value = body.if_contains(name);
  if (!value || value->is_null()) return fallback;
  if (!value->is_bool()) return Error{ErrorCode::kInvalidArgument, std::string(name) + " must be true or false", name};
  return value->get_bool();
}

Body tokenize_body(const Service& service, const json::object& body, BoundedMemory& memory) {
  const engine::ModelInfo& model = service.model;
  const json::value* messages = body.if_contains("messages");
  const json::value* prompt = body.if_contains("prompt");
  if (messages && messages->is_null()) messages = nullptr;
  if (prompt && prompt->is_null()) prompt = nullptr;
  if ((messages != nullptr) == (prompt != nullptr)) {
    return Error{ErrorCode::kInvalidArgument, "exactly one of prompt and messages is required", messages ? "messages" : "prompt"};
  }
  LOCKSTEP_ASSIGN(const bool strings, flag(body, "return_token_strs", false));
  LOCKSTEP_ASSIGN(const bool special, flag(body, "add_special_tokens", true));
  std::vector<std::int32_t> ids;
  if (messages) {
    // The chat route's own table reads the rest, so that the ids are those it would run.
    json::object chat(body);
    chat.erase("return_token_strs");
    chat.erase("add_special_tokens");
    LOCKSTEP_ASSIGN(const RequestFields fields, read_request_fields(chat, kChat));
    LOCKSTEP_ASSIGN(ChatPrompt chat_ids, chat_prompt(model, fields, service.limits.json_depth, false, memory));
    ids = std::move(chat_ids.ids);
  } else {
    if (!prompt->is_string()) return Error{ErrorCode::kInvalidArgument, "prompt must be a string", "prompt"};
    const auto& text = prompt->get_string();
    LOCKSTEP_ASSIGN(ids, model.tokenizer->encode(std::string_view(text.data(), text.size()), special));
  }
  std::string out;
  JsonText json(out);
  json.open_object().number("count", static_cast<std::int64_t>(ids.size())).number("max_model_len", model.context).ids("tokens", ids);
  if (strings) {
    json.open_array("token_strs");
    for (const std::int32_t id : ids) json.element(model.tokenizer->decode(std::span(&id, 1), false));
    json.close_array();
  }
  json.close_object();
  return out;
}

Body detokenize_body(const Service& service, const json::object& body, BoundedMemory&) {
  const json::value* tokens = body.if_contains("tokens");
  if (!tokens || !tokens->is_array()) return Error{ErrorCode::kInvalidArgument, "tokens must be an array of token ids", "tokens"};
  LOCKSTEP_ASSIGN(const std::vector<std::int32_t> ids, read_token_ids(service.model, tokens->get_array(), "tokens"));
  LOCKSTEP_ASSIGN(const bool skip, flag(body, "skip_special_tokens", false));
  std::string out;
  JsonText(out).open_object().text("prompt", service.model.tokenizer->decode(ids, skip)).close_object();
  return out;
}

Answer answer(Service& service, const http::Request& request, Body (*make)(const Service&, const json::object&, BoundedMemory&)) {
  BoundedMemory memory(service.limits.json_memory_bytes);
  try {
    auto body = read_body(service, request, memory);
    if (auto* refused = std::get_if<http::Response>(&body)) return std::move(*refused);
    auto made = make(service, std::get<json::object>(body), memory);
    if (!made.ok()) return error_response(made.error(), request.id);
    http::Response response;
    response.body = std::move(*made);
    return response;
  } catch (const std::bad_alloc&) {  // BoundedMemory is spent
    return error_response(Failure::kBodyTooLarge, "the request body has too many values to hold in memory", "", request.id);
  }
}

}  // namespace

Answer tokenize(Service& service, const http::Request& request, const std::string&) { return answer(service, request, tokenize_body); }
Answer detokenize(Service& service, const http::Request& request, const std::string&) { return answer(service, request, detokenize_body); }

}  // namespace lockstep::server::openai
