#include "server/service_routes.h"

#include "server/error_reply.h"
#include "server/json_text.h"

namespace lockstep::server {

Answer health(Service& service, const http::Request&, const std::string&) {
  const engine::EngineStats stats = service.engine.stats();
  const bool stopping = service.stopping.load();
  http::Response response;
  response.status = stopping ? 503 : 200;
  response.headers.push_back({"Cache-Control", "no-store"});
  JsonText(response.body)
      .open_object()
      .text("status", stopping ? "stopping" : "ok")
      .text("model", service.name)
      .number("context", service.model.context)
      .open_object("requests")
      .number("queued", stats.queued)
      .number("filling", stats.filling)
      .number("decoding", stats.decoding)
      .close_object()
      .open_object("totals")
      .number("requests", stats.requests)
      .number("prompt_tokens", stats.prompt_tokens)
      .number("cached_tokens", stats.cached_tokens)
      .number("generated_tokens", stats.generated_tokens)
      .number("cancelled", stats.cancelled)
      .number("failed", stats.failed)
      .close_object()
      .number("connections", service.connections.load())
      .close_object();
  return response;
}

Answer cancel_request(Service& service, const http::Request& request, const std::string& id) {
  const auto handles = service.engine.live(id);
  if (handles.empty()) return error_response(Failure::kNoRequest, "no live request has the id " + log_text(id, 128), "", request.id);
  for (const auto handle : handles) service.engine.cancel(handle);
  http::Response response;
  JsonText(response.body)
      .open_object()
      .text("id", id)
      .text("object", "request.cancelled")
      .number("cancelled", static_cast<std::int64_t>(handles.size()))
      .close_object();
  return response;
}

}  // namespace lockstep::server
