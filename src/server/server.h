// The HTTP server: an Asio pool that parses, renders and tokenizes, in front of one engine.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "server/limits.h"

namespace lockstep::server {

struct ServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8080;          // 0: any free port
  std::string name;                   // served model name; empty: the folder's
  std::string api_key;                // empty: no key
  std::string cors_origin;            // "*", or origins separated by commas; empty: no CORS headers
  int threads = 2;                    // of the pool that parses, renders and tokenizes
  Limits limits;
};

class Server {
 public:
  /// Binds and serves at once. kIo names the port that is in use.
  static Result<std::unique_ptr<Server>> start(engine::Engine& engine, const ServerOptions& options);
  ~Server();
  std::uint16_t port() const;
  /// Refuses new work, waits up to `drain_seconds` for live replies, then cancels them; returns when all connections are closed.
  void stop(double drain_seconds);

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Serves until SIGTERM or SIGINT: drain 30 s, then cancel; a second signal exits at once. Returns the exit code.
int serve_until_signal(Server& server);

/// The page docs/api.md: routes, request fields and errors, printed from the tables that serve them.
std::string fields_markdown();

}  // namespace lockstep::server
