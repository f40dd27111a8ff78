// Routes of the server itself: health, and cancelling a request.
#pragma once
#include <string>

#include "server/service.h"

namespace lockstep::server {

/// 200 {"status":"ok", ...}; 503 with "stopping" while the server drains.
Answer health(Service& service, const http::Request& request, const std::string& id);

/// DELETE /v1/requests/{id}.
Answer cancel_request(Service& service, const http::Request& request, const std::string& id);

}  // namespace lockstep::server
