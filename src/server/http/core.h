// What all connections of a server share.
#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <set>

#include "server/access.h"
#include "server/http/reply_inbox.h"
#include "server/service.h"

namespace lockstep::server::http {

class Connection;

/// Sockets, timers and everything marked so belong to the one thread that runs `io`: no locks there. Bodies are parsed, rendered and
/// tokenized on `work`, large ones on `large_work`, so that they cannot hold up the small ones.
struct Core {
  Core(engine::Engine& engine, std::string name, const Limits& limits, ApiKey api_key, Cors cors_, int threads)
      : service(engine, std::move(name), limits), key(std::move(api_key)), cors(std::move(cors_)), work(static_cast<std::size_t>(threads)) {}

  Service service;
  ApiKey key;
  Cors cors;
  std::shared_ptr<LiveCount> replies = std::make_shared<LiveCount>();
  std::shared_ptr<LiveCount> open_connections = std::make_shared<LiveCount>();

  boost::asio::io_context io{1};
  boost::asio::thread_pool work;
  boost::asio::thread_pool large_work{1};

  // io thread only
  std::set<std::shared_ptr<Connection>> connections;
  std::size_t bodies_bytes = 0;  // held by all connections
};

}  // namespace lockstep::server::http
