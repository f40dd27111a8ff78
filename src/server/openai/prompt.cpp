#include "server/openai/prompt.h"

#include <boost/json/serialize.hpp>

#include "server/openai/messages.h"
#include "server/openai/resume_points.h"
#include "text/chat_template.h"

namespace lockstep::server::openai {
namespace json = boost::json;

Result<ChatPrompt> chat_prompt(const engine::ModelInfo& model, const RequestFields& fields, int json_depth, bool with_resume_points,
                               BoundedMemory& memory) {
  if (!model.chat_template) {
    return Error{ErrorCode::kUnsupported, "the model " + model.name + " has no chat template; use /v1/completions", "messages"};
  }
  const MarkPlain mark = [&](std::string_view text) { return text::mark_plain(*model.tokenizer, text, false); };
  MessageOptions options;
  options.split_thinking = model.think_end.has_value();
  options.json_depth = json_depth;
  LOCKSTEP_ASSIGN(json::array messages, read_messages(*fields.messages, options, mark, memory));

  const json::storage_ptr storage(&memory);
  json::object variables(storage);
  if (!fields.reasoning_effort.empty()) {
    variables["reasoning_effort"] = fields.reasoning_effort;
    variables["enable_thinking"] = fields.reasoning_effort != "none";
  }
  if (fields.template_kwargs) {
    for (const auto& member : *fields.template_kwargs) {
      if (member.value().is_null() && member.key() == "enable_thinking") continue;
      variables[member.key()] = mark_value(member.value(), mark, storage);
    }
  }
  variables["messages"] = std::move(messages);
  variables["add_generation_prompt"] = fields.add_generation_prompt;

  auto rendered = model.chat_template->render(json::serialize(variables));
  if (!rendered.ok()) return Error{rendered.error().code, rendered.error().message, "messages"};
  auto ids = model.tokenizer->encode_chat(*rendered);
  if (!ids.ok()) return Error{ids.error().code, ids.error().message, "messages"};
  if (ids->empty()) return Error{ErrorCode::kInvalidArgument, "messages give an empty prompt", "messages"};
  ChatPrompt out{std::move(*ids), {}};
  const bool fits = static_cast<std::int64_t>(out.ids.size()) < model.context;
  if (with_resume_points && fits) out.resume_points = resume_points(model, variables, *rendered, out.ids);
  return out;
}

Result<std::vector<std::int32_t>> read_token_ids(const engine::ModelInfo& model, const json::array& ids, const std::string& name) {
  const std::int64_t largest = model.tokenizer->largest_id();
  std::vector<std::int32_t> out;
  out.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = as_integer(ids[i]);
    if (!id || *id < 0 || *id > largest) {
      const std::string where = name + '[' + std::to_string(i) + ']';
      return Error{ErrorCode::kInvalidArgument, where + " must be a token id, an integer from 0 to " + std::to_string(largest), where};
    }
    out.push_back(static_cast<std::int32_t>(*id));
  }
  return out;
}

Result<std::vector<std::int32_t>> raw_prompt(const engine::ModelInfo& model, const json::value& prompt, bool add_special_tokens) {
  const json::value* one = &prompt;
  std::string name = "prompt";
  if (const auto* list = prompt.if_array(); list && !list->empty() && ((*list)[0].is_string() || (*list)[0].is_array())) {
    if (list->size() > 1) {
      return Error{ErrorCode::kUnsupported, "prompt has " + std::to_string(list->size()) + " prompts; send one request for each", "prompt"};
    }
    one = &(*list)[0];
    name = "prompt[0]";
  }
  if (const auto* text = one->if_string()) {
    auto ids = model.tokenizer->encode(std::string_view(text->data(), text->size()), add_special_tokens);
    if (!ids.ok()) return Error{ids.error().code, ids.error().message, name};
    if (ids->empty()) return Error{ErrorCode::kInvalidArgument, name + " is empty", name};
    return ids;
  }
  const auto* ids = one->if_array();
  if (!ids) return Error{ErrorCode::kInvalidArgument, name + " must be a string or an array of token ids", name};
  if (ids->empty()) return Error{ErrorCode::kInvalidArgument, name + " is empty", name};
  return read_token_ids(model, *ids, name);
}

bool ends_in_reasoning(const engine::ModelInfo& model, const std::vector<std::int32_t>& ids) {
  if (!model.think_start || !model.think_end) return false;
  for (auto it = ids.rbegin(); it != ids.rend(); ++it) {
    if (*it == *model.think_end) return false;
    if (*it == *model.think_start) return true;
  }
  return false;
}

}  // namespace lockstep::server::openai
