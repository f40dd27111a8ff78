#include "server/server.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <thread>

#include "server/http/connection.h"
#include "server/http/core.h"

namespace lockstep::server {
namespace asio = boost::asio;
using asio::ip::tcp;
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRefusalsAtOnce = 64;  // connections above the limit that are told so; more are just closed

// Every connection is a descriptor; the usual soft limit of 1,024 leaves too few.
int connection_limit(int wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::min(wanted, 256);
  const rlim_t need = static_cast<rlim_t>(wanted) + kRefusalsAtOnce + 64;
  if (limit.rlim_cur < need) {
    limit.rlim_cur = std::min(need, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur >= need) return wanted;
  return std::max(1, static_cast<int>(limit.rlim_cur) - kRefusalsAtOnce - 64);
}

Error bind_error(const std::string& host, std::uint16_t port, const boost::system::error_code& ec) {
  if (ec == asio::error::address_in_use) {
    return {ErrorCode::kIo, fmt::format("port {} on {} is in use: stop the program that holds it, or choose another port", port, host), "port"};
  }
  return {ErrorCode::kIo, fmt::format("cannot listen on {} port {}: {}", host, port, ec.message()), "port"};
}

}  // namespace

struct Server::Impl {
  Impl(engine::Engine& engine, const ServerOptions& options, Cors cors)
      : core(engine, options.name, options.limits, ApiKey(options.api_key), std::move(cors), std::max(1, options.threads)), sweep_timer(core.io) {
    core.service.limits.connections = connection_limit(options.limits.connections);
  }

  Status listen(const ServerOptions& options);
  Status open(const tcp::endpoint& endpoint, const std::string& host);
  asio::awaitable<void> accept(tcp::acceptor& acceptor);
  asio::awaitable<void> sweep();
  void admit(tcp::socket socket);
  void stop(double drain_seconds);

  http::Core core;
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(core.io);
  asio::steady_timer sweep_timer;
  bool sweep_over = false;  // io thread
  std::vector<std::unique_ptr<tcp::acceptor>> acceptors;
  std::uint16_t port = 0;
  std::thread io_thread;
  std::mutex stop_mutex;
  bool stopped = false;
};

Status Server::Impl::open(const tcp::endpoint& endpoint, const std::string& host) {
  auto acceptor = std::make_unique<tcp::acceptor>(core.io);
  boost::system::error_code ec;
  acceptor->open(endpoint.protocol(), ec);
  if (!ec) acceptor->set_option(asio::socket_base::reuse_address(true), ec);
  if (!ec && endpoint.protocol() == tcp::v6()) acceptor->set_option(asio::ip::v6_only(!endpoint.address().is_unspecified()), ec);
  if (!ec) acceptor->bind(endpoint, ec);
  if (!ec) acceptor->listen(asio::socket_base::max_listen_connections, ec);
  if (ec) return bind_error(host, endpoint.port(), ec);
  port = acceptor->local_endpoint(ec).port();
  acceptors.push_back(std::move(acceptor));
  return {};
}

// Every address of the host, all on one port; those this machine does not have (::1 without IPv6) are left out if another one works.
Status Server::Impl::listen(const ServerOptions& options) {
  tcp::resolver resolver(core.io);
  boost::system::error_code ec;
  const auto found = resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive | tcp::resolver::numeric_service, ec);
  if (ec) return Error{ErrorCode::kIo, fmt::format("the host {} is not an address of this machine: {}", options.host, ec.message()), "host"};
  std::vector<tcp::endpoint> endpoints;
  for (const auto& entry : found) endpoints.push_back(entry.endpoint());
  std::stable_sort(endpoints.begin(), endpoints.end(), [](const auto& a, const auto& b) { return a.address().is_v4() && !b.address().is_v4(); });
  Status first_failure;
  for (auto& endpoint : endpoints) {
    endpoint.port(port != 0 ? port : options.port);
    const Status opened = open(endpoint, options.host);
    if (opened.ok()) continue;
    if (acceptors.empty() && endpoint.address().is_v4()) return opened;
    if (first_failure.ok()) first_failure = opened;
  }
  if (acceptors.empty()) return first_failure.ok() ? Error{ErrorCode::kIo, "the host " + options.host + " has no address", "host"} : first_failure.error();
  return {};
}

asio::awaitable<void> Server::Impl::accept(tcp::acceptor& acceptor) {
  while (acceptor.is_open()) {
    auto [ec, socket] = co_await acceptor.async_accept(asio::as_tuple(asio::use_awaitable));
    if (!ec) {
      admit(std::move(socket));
    } else if (ec != asio::error::operation_aborted && ec != asio::error::connection_aborted) {
      spdlog::warn("a connection could not be accepted: {}", ec.message());
      asio::steady_timer pause(core.io, std::chrono::milliseconds(100));  // out of descriptors: some will come free
      co_await pause.async_wait(asio::as_tuple(asio::use_awaitable));
    }
  }
}

void Server::Impl::admit(tcp::socket socket) {
  const int limit = core.service.limits.connections;
  const auto open_now = static_cast<int>(core.connections.size());
  if (open_now >= limit + kRefusalsAtOnce) return;
  bool refuse = open_now >= limit;
  if (refuse) {
    // A connection that only waits for a next request gives way, the oldest first.
    http::Connection* oldest = nullptr;
    for (const auto& connection : core.connections) {
      if (connection->idle() && (!oldest || connection->idle_since() < oldest->idle_since())) oldest = connection.get();
    }
    if (oldest) {
      oldest->close_now();
      refuse = false;
    }
  }
  const auto connection = std::make_shared<http::Connection>(core, std::move(socket));
  core.connections.insert(connection);
  connection->start(refuse);
}

asio::awaitable<void> Server::Impl::sweep() {
  const Limits& l = core.service.limits;
  const auto shortest = std::min({l.header_time, l.body_progress_time, l.body_time, l.idle_time, l.write_progress_time, l.linger_time});
  const auto period = std::clamp(shortest / 4, std::chrono::milliseconds(10), std::chrono::milliseconds(250));
  while (!sweep_over) {
    sweep_timer.expires_after(period);
    const auto [ec] = co_await sweep_timer.async_wait(asio::as_tuple(asio::use_awaitable));
    if (ec) continue;
    const auto now = Clock::now();
    for (const auto& connection : core.connections) connection->check_deadline(now);
  }
}

void Server::Impl::stop(double drain_seconds) {
  const std::lock_guard lock(stop_mutex);
  if (std::exchange(stopped, true)) return;
  const Limits& limits = core.service.limits;
  const auto each = [&](auto act) {
    asio::post(core.io, [this, act] {
      for (const auto& connection : core.connections) act(*connection);
    });
  };
  core.service.stopping = true;
  asio::post(core.io, [this] {
    boost::system::error_code ignored;
    for (auto& acceptor : acceptors) acceptor->close(ignored);
  });
  each([](http::Connection& c) { c.stop_soon(); });

  const auto drain = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::clamp(drain_seconds, 0.0, 3600.0)));
  if (!core.replies->wait_for_none(Clock::now() + drain)) {
    spdlog::warn("{} replies are not finished and are cancelled", core.replies->count());
    each([](http::Connection& c) { c.cancel_reply(); });
    while (!core.replies->wait_for_none(Clock::now() + limits.cancel_time)) spdlog::warn("waiting for the engine to end {} replies", core.replies->count());
  }
  core.open_connections->wait_for_none(Clock::now() + limits.linger_time);
  while (!core.open_connections->wait_for_none(Clock::now() + std::chrono::milliseconds(100))) {
    each([](http::Connection& c) { c.close_now(); });
  }
  asio::post(core.io, [this] {
    sweep_over = true;
    sweep_timer.cancel();
  });
  work.reset();
  core.work.join();
  core.large_work.join();
  io_thread.join();
}

Result<std::unique_ptr<Server>> Server::start(engine::Engine& engine, const ServerOptions& options) {
  LOCKSTEP_ASSIGN(Cors cors, Cors::parse(options.cors_origin));
  auto impl = std::make_unique<Impl>(engine, options, std::move(cors));
  LOCKSTEP_TRY(impl->listen(options));
  if (options.api_key.empty() && !is_loopback(options.host)) {
    spdlog::warn("{} can be reached from other machines and no API key is set: anyone who can connect can use this server", options.host);
  }
  for (auto& acceptor : impl->acceptors) asio::co_spawn(impl->core.io, impl->accept(*acceptor), asio::detached);
  asio::co_spawn(impl->core.io, impl->sweep(), asio::detached);
  impl->io_thread = std::thread([&io = impl->core.io] { io.run(); });
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { impl_->stop(0); }
std::uint16_t Server::port() const { return impl_->port; }
void Server::stop(double drain_seconds) { impl_->stop(drain_seconds); }

}  // namespace lockstep::server
