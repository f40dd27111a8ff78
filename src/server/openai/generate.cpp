#include "server/openai/generate.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <ctime>
#include <new>

#include "base/sha256.h"
#include "server/error_reply.h"
#include "server/openai/prompt.h"
#include "server/openai/request_fields.h"

namespace lockstep::server::openai {
namespace json = boost::json;
namespace {

Error too_long(const Service& service, std::int64_t prompt_tokens, Route route) {
  return {ErrorCode::kContextLengthExceeded,
          fmt::format("This model's maximum context length is {} tokens. However, your {} resulted in {} tokens, which leaves no room for a reply. "
                      "Please reduce the length of the {}.",
                      service.model.context, route == kChat ? "messages" : "prompt", prompt_tokens, route == kChat ? "messages" : "prompt"),
          route == kChat ? "messages" : "prompt"};
}

void log_once(Service& service, const RequestFields& fields) {
  for (const auto& name : fields.unknown) {
    if (service.once.first("field " + name.substr(0, 256))) spdlog::warn("request field {} is not known and is ignored (said once)", log_text(name));
  }
  if (!fields.model.empty() && fields.model != service.name && service.once.first("model " + fields.model.substr(0, 256))) {
    spdlog::warn("model {} was asked for, {} is served (said once)", log_text(fields.model), log_text(service.name));
  }
}

sampling::SamplingParams sampling_of(const RequestFields& fields, const engine::ModelInfo& model, const std::vector<std::int32_t>& prompt_ids) {
  sampling::SamplingParams params = model.default_sampling;
  params.temperature = fields.temperature.value_or(params.temperature);
  params.top_k = fields.top_k.value_or(params.top_k);
  params.top_p = fields.top_p.value_or(params.top_p);
  params.min_p = fields.min_p.value_or(params.min_p);
  params.seed = fields.seed ? *fields.seed : default_seed(prompt_ids);
  return params;
}

Generation make_generation(const Service& service, const http::Request& http_request, Route route, const RequestFields& fields,
                           std::vector<std::int32_t> ids) {
  const engine::ModelInfo& model = service.model;
  Generation out;
  engine::Request& request = out.request;
  const std::int64_t left = model.context - static_cast<std::int64_t>(ids.size());
  request.id = http_request.id;
  request.sampling = sampling_of(fields, model, ids);
  request.max_tokens = std::min(left, fields.max_tokens.value_or(left));
  request.ignore_eos = fields.ignore_eos;
  request.text.split_reasoning = route == kChat && model.think_end.has_value();
  request.text.starts_in_reasoning = request.text.split_reasoning && ends_in_reasoning(model, ids);
  request.text.think_start = model.think_start;
  request.text.think_end = model.think_end;
  request.text.stop = fields.stop;
  request.priority = fields.priority;
  request.cache_salt = fields.cache_salt;
  request.choices = fields.n;

  ReplyShape& shape = out.shape;
  shape.chat = route == kChat;
  shape.stream = fields.stream;
  shape.include_usage = fields.include_usage;
  shape.return_token_ids = fields.return_token_ids;
  shape.choices = fields.n;
  shape.reply_id = random_id(route == kChat ? "chatcmpl-" : "cmpl-");
  shape.model = service.name;
  shape.fingerprint = service.fingerprint;
  shape.created = static_cast<std::int64_t>(std::time(nullptr));
  if (fields.return_token_ids) shape.prompt_ids = ids;
  shape.split_reasoning = request.text.split_reasoning;
  shape.starts_in_reasoning = request.text.starts_in_reasoning;
  shape.think_start = model.think_start;
  shape.think_end = model.think_end;
  request.prompt_ids = std::move(ids);
  return out;
}

Result<Generation> read_generation(Service& service, const http::Request& request, Route route, const json::object& body, BoundedMemory& memory) {
  LOCKSTEP_ASSIGN(RequestFields fields, read_request_fields(body, route));
  log_once(service, fields);
  ChatPrompt prompt;
  if (route == kChat) {
    LOCKSTEP_ASSIGN(prompt, chat_prompt(service.model, fields, service.limits.json_depth, true, memory));
  } else {
    LOCKSTEP_ASSIGN(prompt.ids, raw_prompt(service.model, *fields.prompt, fields.add_special_tokens));
  }
  const auto count = static_cast<std::int64_t>(prompt.ids.size());
  if (count + 1 > service.model.context) return too_long(service, count, route);
  Generation out = make_generation(service, request, route, fields, std::move(prompt.ids));
  out.request.resume_points = std::move(prompt.resume_points);
  return out;
}

Answer generate(Service& service, const http::Request& request, Route route) {
  BoundedMemory memory(service.limits.json_memory_bytes);
  try {
    auto body = read_body(service, request, memory);
    if (auto* refused = std::get_if<http::Response>(&body)) return std::move(*refused);
    auto generation = read_generation(service, request, route, std::get<json::object>(body), memory);
    if (!generation.ok()) return error_response(generation.error(), request.id);
    return std::move(*generation);
  } catch (const std::bad_alloc&) {  // BoundedMemory is spent
    return error_response(Failure::kBodyTooLarge, "the request body has too many values to hold in memory", "", request.id);
  }
}

}  // namespace

std::variant<json::object, http::Response> read_body(const Service& service, const http::Request& request, BoundedMemory& memory) {
  if (request.body.empty()) return error_response(Failure::kInvalidRequest, "the request body is empty; a JSON object is expected", "", request.id);
  auto value = parse_json(request.body, "the request body", service.limits.json_depth, memory);
  if (!value.ok()) {
    const bool full = value.error().code == ErrorCode::kDoesNotFit;
    return error_response(full ? Failure::kBodyTooLarge : Failure::kInvalidRequest, value.error().message, "", request.id);
  }
  if (!value->is_object()) return error_response(Failure::kInvalidRequest, "the request body must be a JSON object", "", request.id);
  return std::move(value->get_object());
}

Answer chat_completions(Service& service, const http::Request& request, const std::string&) { return generate(service, request, kChat); }
Answer completions(Service& service, const http::Request& request, const std::string&) { return generate(service, request, kCompletions); }

}  // namespace lockstep::server::openai
