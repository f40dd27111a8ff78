// What every handler works with: the engine, the served name, and what has been logged once.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <variant>

#include "engine/engine.h"
#include "server/http/message.h"
#include "server/limits.h"
#include "server/openai/reply_writer.h"

namespace lockstep::server {

/// Says true once for each text, for at most 256 of them; then false.
class OnceLog {
 public:
  bool first(std::string_view text);

 private:
  std::mutex mutex_;
  std::set<std::string, std::less<>> seen_;
};

struct Service {
  Service(engine::Engine& engine_, std::string served_name, const Limits& limits_);

  engine::Engine& engine;
  const engine::ModelInfo& model;
  std::string name;         // served model name
  std::string fingerprint;  // of what decides a reply's tokens beside the request: model and context
  std::int64_t created;     // seconds since 1970
  Limits limits;
  OnceLog once;
  std::atomic<bool> stopping{false};
  std::atomic<int> connections{0};
};

/// A request for the engine and how its reply is written.
struct Generation {
  engine::Request request;
  openai::ReplyShape shape;
};

using Answer = std::variant<http::Response, Generation>;

/// "chatcmpl-" and 32 hex digits of randomness, with the prefix given.
std::string random_id(std::string_view prefix);

/// Client text for a log line: printable ASCII, everything else as \xNN, at most `limit` bytes.
std::string log_text(std::string_view text, std::size_t limit = 80);

}  // namespace lockstep::server
