#include "server/routes.h"

#include "server/metrics.h"
#include "server/openai/generate.h"
#include "server/openai/models_route.h"
#include "server/openai/tokenize_route.h"
#include "server/service_routes.h"

namespace lockstep::server {
namespace {

constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", openai::chat_completions, true, true, "a chat, through the model's template; streamed or not"},
    {"POST", "/v1/completions", openai::completions, true, true, "a prompt as given; streamed or not"},
    {"GET", "/v1/models", openai::list_models, true, false, "the served model"},
    {"GET", "/v1/models/{id}", openai::get_model, true, false, "the same, alone; 404 for another name"},
    {"POST", "/tokenize", openai::tokenize, true, true, "token ids of a prompt or of messages, as the other routes would run them"},
    {"POST", "/v1/tokenize", openai::tokenize, true, true, "the same"},
    {"POST", "/detokenize", openai::detokenize, true, true, "text of token ids"},
    {"POST", "/v1/detokenize", openai::detokenize, true, true, "the same"},
    {"DELETE", "/v1/requests/{id}", cancel_request, true, false, "cancels the live request of this x-request-id; 404 if there is none"},
    {"GET", "/metrics", metrics, true, false, "counters and gauges in Prometheus's text format"},
    {"GET", "/memory", memory, true, false, "bytes held by tag, the peak and the budget"},
    {"GET", "/health", health, false, false, "state of the server and live counts; needs no key"},
};

constexpr std::string_view kId = "{id}";

// Whether `path` is the route's; fills the id.
bool path_matches(std::string_view pattern, std::string_view path, std::string& id) {
  if (!pattern.ends_with(kId)) return pattern == path;
  pattern.remove_suffix(kId.size());
  if (!path.starts_with(pattern) || path.size() == pattern.size()) return false;
  const auto decoded = http::percent_decode(path.substr(pattern.size()));
  if (!decoded) return false;
  id = *decoded;
  return true;
}

}  // namespace

std::span<const Route> route_table() { return kRoutes; }

Match match_route(std::string_view method, std::string_view path) {
  Match match;
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  for (const Route& route : kRoutes) {
    std::string id;
    if (!path_matches(route.path, path, id)) continue;
    if (!match.allow.empty()) match.allow += ", ";
    match.allow += route.method;
    if (route.method == "GET") match.allow += ", HEAD";
    if (route.method == wanted) {
      match.route = &route;
      match.id = std::move(id);
    }
  }
  if (!match.allow.empty()) {
    match.allow += ", OPTIONS";
    return match;
  }
  // The two usual slips of a base URL.
  std::string nearby = "/v1" + std::string(path);
  if (path.starts_with("/v1/v1/")) nearby = path.substr(3);
  if (path.size() > 1 && path.back() == '/') nearby = path.substr(0, path.size() - 1);
  for (const Route& route : kRoutes) {
    if (route.path == nearby) match.advice = "; did you mean " + nearby + "?";
  }
  return match;
}

}  // namespace lockstep::server
