// POST /tokenize and /detokenize.
#pragma once
#include <string>

#include "server/service.h"

namespace lockstep::server::openai {

/// {"prompt": string} or {"messages": [...]} (with the chat route's template fields) -> {"count", "max_model_len", "tokens", "token_strs"}.
Answer tokenize(Service& service, const http::Request& request, const std::string& id);
/// {"tokens": [ids]} -> {"prompt": text}.
Answer detokenize(Service& service, const http::Request& request, const std::string& id);

}  // namespace lockstep::server::openai
