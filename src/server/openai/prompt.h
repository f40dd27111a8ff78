// From a request's messages or prompt to the token ids the engine runs.
#pragma once
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "server/json_input.h"
#include "server/openai/request_fields.h"

namespace lockstep::server::openai {

struct ChatPrompt {
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> resume_points;  // resume_points.h; empty unless asked for, and for a prompt that is too long
};

/// Renders the messages with the model's template and encodes them. Errors name the message, or carry the template's words.
Result<ChatPrompt> chat_prompt(const engine::ModelInfo& model, const RequestFields& fields, int json_depth, bool with_resume_points,
                               BoundedMemory& memory);

/// A string, an array of token ids, or a list of one of these. `add_special_tokens`: of a string (BOS and the like).
Result<std::vector<std::int32_t>> raw_prompt(const engine::ModelInfo& model, const boost::json::value& prompt, bool add_special_tokens = true);

/// Checks an array of token ids against the vocabulary; `name` is its path for errors.
Result<std::vector<std::int32_t>> read_token_ids(const engine::ModelInfo& model, const boost::json::array& ids, const std::string& name);

/// Whether a prompt ends inside an open think block.
bool ends_in_reasoning(const engine::ModelInfo& model, const std::vector<std::int32_t>& ids);

}  // namespace lockstep::server::openai
