// The one table of routes.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "server/service.h"

namespace lockstep::server {

using Handler = Answer (*)(Service& service, const http::Request& request, const std::string& id);

struct Route {
  std::string_view method;
  std::string_view path;  // a last segment "{id}" takes the rest of the path, decoded
  Handler handler;
  bool needs_key;
  bool takes_body;  // JSON
  std::string_view meaning;
};

std::span<const Route> route_table();

struct Match {
  const Route* route = nullptr;  // HEAD finds GET
  std::string id;
  std::string allow;   // methods of the path, when the path is known; OPTIONS and HEAD included
  std::string advice;  // for a path that is not known
};
Match match_route(std::string_view method, std::string_view path);

}  // namespace lockstep::server
