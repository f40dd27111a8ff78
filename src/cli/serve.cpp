// lockstep serve: the engine and the HTTP server in front of it, until a signal.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "cli/commands.h"
#include "server/server.h"

namespace lockstep::cli {
namespace {

/// The key of the flag, the file or the environment, in this order; empty: none.
Result<std::string> api_key(const Options& options) {
  if (options.api_key) {
    if (options.api_key->empty()) return Error{ErrorCode::kInvalidArgument, "--api-key is empty: leave it out to serve without a key", "--api-key"};
    return *options.api_key;
  }
  if (!options.api_key_file.empty()) {
    std::ifstream file(options.api_key_file);
    std::string key;
    if (!file || !std::getline(file, key))
      return Error{ErrorCode::kNotFound, fmt::format("--api-key-file {} cannot be read or is empty", options.api_key_file),
                   options.api_key_file};
    while (!key.empty() && (key.back() == '\r' || key.back() == ' ')) key.pop_back();
    if (key.empty())
      return Error{ErrorCode::kInvalidArgument, fmt::format("the first line of {} is empty", options.api_key_file), options.api_key_file};
    return key;
  }
  const char* set = std::getenv("LOCKSTEP_API_KEY");
  return std::string(set ? set : "");
}

}  // namespace

int serve(const Options& options) {
  spdlog::set_level(spdlog::level::from_str(options.log_level));
  auto engine_flags = engine_options(options);
  if (!engine_flags) return fail(engine_flags.error());
  server::ServerOptions server_options;
  server_options.host = options.host;
  server_options.port = std::uint16_t(options.port);
  server_options.name = options.name;
  server_options.cors_origin = options.cors_origin;
  server_options.threads = options.http_threads;
  auto key = api_key(options);
  if (!key) return fail(key.error());
  server_options.api_key = *key;

  auto engine = engine::Engine::create(*engine_flags);
  if (!engine) return fail(engine.error());
  end_progress();
  const engine::ModelInfo& model = (*engine)->info();
  auto server = server::Server::start(**engine, server_options);
  if (!server) return fail(server.error());
  const std::string host = options.host.find(':') == std::string::npos ? options.host : "[" + options.host + "]";
  fmt::print("lockstep serves {} at http://{}:{}/v1 (context {}, {} at a time, {}, {} threads)\n", options.name.empty() ? model.name : options.name, host,
             (*server)->port(), model.context, model.parallel, model.isa, model.threads);
  std::fflush(stdout);
  return server::serve_until_signal(**server);
}

}  // namespace lockstep::cli
