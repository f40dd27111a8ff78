// GET /v1/models and /v1/models/{id}.
#pragma once
#include <string>

#include "server/service.h"

namespace lockstep::server::openai {

Answer list_models(Service& service, const http::Request& request, const std::string& id);
Answer get_model(Service& service, const http::Request& request, const std::string& id);

}  // namespace lockstep::server::openai
