// POST /v1/chat/completions and /v1/completions: from a body to a request for the engine.
#pragma once
#include <boost/json/object.hpp>
#include <string>

#include "server/json_input.h"
#include "server/service.h"

namespace lockstep::server::openai {

Answer chat_completions(Service& service, const http::Request& request, const std::string& id);
Answer completions(Service& service, const http::Request& request, const std::string& id);

/// The body as an object, or the reply that says why it is none.
std::variant<boost::json::object, http::Response> read_body(const Service& service, const http::Request& request, BoundedMemory& memory);

}  // namespace lockstep::server::openai
