// The server on a scripted engine: scripted_server FOLDER [PORT [API_KEY [CONTEXT]]]. Prints the port, serves until a signal.
#include <cstdio>
#include <cstdlib>

#include "server/scripted_engine.h"
#include "server/server.h"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  lockstep::server::ServerOptions options;
  options.port = argc > 2 ? static_cast<std::uint16_t>(std::atoi(argv[2])) : 0;
  if (argc > 3) options.api_key = argv[3];
  const auto engine = lockstep::engine::ScriptedEngine::create(argv[1], argc > 4 ? std::atoi(argv[4]) : 4096);
  auto server = lockstep::server::Server::start(*engine, options);
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.error().message.c_str());
    return 1;
  }
  std::printf("port %d\n", (*server)->port());
  std::fflush(stdout);
  return lockstep::server::serve_until_signal(**server);
}
