// A server on a scripted engine for one test.
#pragma once
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "server/http_client.h"
#include "server/scripted_engine.h"
#include "server/server.h"

namespace lockstep::server {

inline std::filesystem::path tokenizer_folder() { return std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "models" / "tiny-qwen3_5-mlx-4bit"; }

inline std::unique_ptr<Server> start_server(engine::Engine& engine, const ServerOptions& options) {
  auto server = Server::start(engine, options);
  if (!server.ok()) {
    ADD_FAILURE() << server.error().message;
    std::abort();
  }
  return std::move(*server);
}

class Serving : public ::testing::Test {
 protected:
  Serving() {
    spdlog::set_level(spdlog::level::off);
    options.port = 0;
  }
  ~Serving() override {
    server.reset();
    engine.reset();
  }
  void start(std::int64_t context = 4096, std::size_t max_queue = 256) {
    engine = engine::ScriptedEngine::create(tokenizer_folder(), context, max_queue);
    server = start_server(*engine, options);
    port = server->port();
  }
  testing::HttpReply post(const std::string& path, const std::string& body, const std::string& headers = "") {
    return testing::fetch(port, "POST", path, body, headers);
  }
  testing::HttpReply complete(const std::string& prompt, const std::string& more = "") {
    return post("/v1/completions", R"({"prompt":")" + prompt + '"' + more + "}");
  }
  testing::HttpReply get(const std::string& path, const std::string& headers = "") { return testing::fetch(port, "GET", path, "", headers); }
  static boost::json::value json(const testing::HttpReply& reply) { return boost::json::parse(reply.body); }
  static std::string code(const testing::HttpReply& reply) { return std::string(json(reply).at("error").at("code").as_string()); }

  /// Waits up to `limit` for a state of the engine.
  bool eventually(const std::function<bool(const engine::EngineStats&)>& holds, std::chrono::milliseconds limit = std::chrono::seconds(10)) {
    const auto until = std::chrono::steady_clock::now() + limit;
    while (std::chrono::steady_clock::now() < until) {
      if (holds(engine->stats())) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  static bool none_live(const engine::EngineStats& stats) { return stats.queued + stats.filling + stats.decoding == 0; }
  static bool decoding(const engine::EngineStats& stats) { return stats.decoding > 0; }

  ServerOptions options;
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<Server> server;
  std::uint16_t port = 0;
};

}  // namespace lockstep::server
