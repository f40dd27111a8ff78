// One client's connection: requests one after another, each read, answered and logged. Everything here runs on the io thread.
#pragma once
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/core.h"
#include "server/http/request_parser.h"
#include "server/routes.h"

namespace lockstep::server::http {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Clock = std::chrono::steady_clock;

  Connection(Core& core, boost::asio::ip::tcp::socket socket);
  ~Connection();

  /// Serves until the client or a limit ends it. `refuse`: answers 503 once instead.
  void start(bool refuse);
  /// Called often; an operation past its deadline is cancelled.
  void check_deadline(Clock::time_point now);
  /// Waiting for a next request of which nothing has come.
  bool idle() const { return phase_ == Phase::kIdle; }
  Clock::time_point idle_since() const { return idle_since_; }
  /// The server drains: idle connections close, others after their reply.
  void stop_soon();
  /// Ends the engine's work for the reply in hand; its client gets an error.
  void cancel_reply();
  void close_now();

 private:
  template <class T>
  using Task = boost::asio::awaitable<T>;
  enum class Phase { kIdle, kReading, kWorking };

  Task<void> run(bool refuse);
  Task<bool> serve_one();  // false: the connection ends
  Task<bool> read_header(RequestParser& parser);
  Task<bool> read_body(RequestParser& parser);
  Task<bool> answer(Request& request, const Match& match);
  Task<Answer> handle(const Request& request, const Match& match);

  /// A reply that needs no body: the key, the method, the route, the framing. nullopt: go on.
  std::optional<Response> early_reply(const Request& request, const Match& match) const;

  // The engine's reply.
  struct Reply;
  Task<bool> generate(const Request& request, Generation& generation);
  Task<void> follow(Reply& reply);         // until the engine's finish
  Task<bool> send_failure(Reply& reply);
  Task<bool> send_chunk(Reply& reply, bool last);
  void collect(Reply& reply);
  void on_events();
  void log_reply(const Reply& reply) const;

  // Bytes.
  Task<std::size_t> receive();                // into buffer_; 0: end, error or deadline
  Task<bool> write(std::string_view bytes);   // false: the client is gone
  Task<bool> write_response(const Request& request, const Response& response);
  Task<void> refuse(const Request& request, Failure failure, std::string_view message);
  Task<void> linger();
  void set_deadline(std::chrono::milliseconds time);
  void clear_deadline() { deadline_ = Clock::time_point::max(); }
  std::string common_headers(const Request& request) const;
  bool keeps(const Request& request) const { return request.keep_alive && !core_.service.stopping.load(); }

  // A client that leaves while its reply is in work.
  void watch();
  void on_readable();
  void end_watch();
  void wake();

  Core& core_;
  const Limits& limits_;
  boost::asio::ip::tcp::socket socket_;
  std::string peer_;
  std::string buffer_;  // received, not yet parsed
  bool first_ = true;   // no request yet
  Phase phase_ = Phase::kIdle;
  Clock::time_point idle_since_ = Clock::now();
  Clock::time_point deadline_ = Clock::time_point::max();
  bool expired_ = false;  // the last operation was cancelled by its deadline
  bool gone_ = false;     // the client left, or was dropped
  std::string_view gone_why_ = "client left";
  unsigned watch_turn_ = 0;
  std::size_t body_share_ = 0;  // of core_.bodies_bytes

  boost::asio::steady_timer wake_;
  std::shared_ptr<ReplyInbox> inbox_;
  std::optional<std::uint64_t> handle_;
  bool server_cancelled_ = false;
};

}  // namespace lockstep::server::http
