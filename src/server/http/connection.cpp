#include "server/http/connection.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <spdlog/spdlog.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "server/error_reply.h"

// No temporary with a destructor stands inside a co_await expression here: g++ 12 destroys it twice.

namespace lockstep::server::http {
namespace asio = boost::asio;
using asio::ip::tcp;
namespace {

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kReadBytes = 16 << 10, kLingerBytes = 4 << 20;

// A peer that vanished without a FIN is noticed by the kernel within about a minute.
void set_options(tcp::socket& socket, int send_buffer_bytes) {
  boost::system::error_code ignored;
  socket.non_blocking(true, ignored);
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  socket.set_option(asio::socket_base::send_buffer_size(send_buffer_bytes), ignored);
  const auto set = [&](int name, int value) { setsockopt(socket.native_handle(), IPPROTO_TCP, name, &value, sizeof value); };
  set(TCP_KEEPIDLE, 30);
  set(TCP_KEEPINTVL, 10);
  set(TCP_KEEPCNT, 3);
  set(TCP_USER_TIMEOUT, 30'000);
}

// application/json, with no charset but UTF-8; a body without a type only where no web page of another origin can have sent it.
bool is_json(const Request& request) {
  const auto* type = request.header("content-type");
  if (!type) return request.header("origin") == nullptr;
  const std::string lower = to_lower(*type);
  const auto semicolon = lower.find(';');
  const std::string_view essence = trim(std::string_view(lower).substr(0, semicolon));
  if (essence != "application/json" && !(essence.starts_with("application/") && essence.ends_with("+json"))) return false;
  const auto charset = lower.find("charset=");
  if (charset == std::string::npos) return true;
  std::string_view name = trim(std::string_view(lower).substr(charset + 8));
  name = trim(name.substr(0, name.find(';')));
  if (name.size() >= 2 && name.front() == '"' && name.back() == '"') name = name.substr(1, name.size() - 2);
  return name == "utf-8" || name == "utf8";
}

}  // namespace

Connection::Connection(Core& core, tcp::socket socket)
    : core_(core), limits_(core.service.limits), socket_(std::move(socket)), wake_(core.io) {
  core_.open_connections->begin();
  ++core_.service.connections;
  boost::system::error_code ec;
  const auto peer = socket_.remote_endpoint(ec);
  peer_ = ec ? "?" : peer.address().to_string();
  set_options(socket_, limits_.send_buffer_bytes);
}

Connection::~Connection() {
  --core_.service.connections;
  core_.open_connections->end();
}

void Connection::start(bool refuse) {
  asio::co_spawn(core_.io, [self = shared_from_this(), refuse] { return self->run(refuse); }, asio::detached);
}

Connection::Task<void> Connection::run(bool refuse_it) {
  const auto self = shared_from_this();
  try {
    if (refuse_it) {
      const Request none;
      co_await refuse(none, Failure::kTooManyConnections, "all connections are in use");
    } else {
      bool more = true;
      while (more) more = co_await serve_one();
    }
    co_await linger();
  } catch (const std::exception& e) {
    spdlog::error("connection from {} ended: {}", peer_, e.what());
  }
  boost::system::error_code ignored;
  socket_.close(ignored);
  core_.bodies_bytes -= body_share_;
  body_share_ = 0;
  core_.connections.erase(self);
}

// ---- deadlines and the server's end

void Connection::set_deadline(std::chrono::milliseconds time) {
  expired_ = false;
  deadline_ = Clock::now() + time;
}

void Connection::check_deadline(Clock::time_point now) {
  if (now < deadline_) return;
  clear_deadline();
  expired_ = true;
  boost::system::error_code ignored;
  socket_.cancel(ignored);
}

void Connection::stop_soon() {
  if (idle()) close_now();
}

void Connection::cancel_reply() {
  if (!handle_) return;
  server_cancelled_ = true;
  core_.service.engine.cancel(*handle_);
}

void Connection::close_now() {
  boost::system::error_code ignored;
  socket_.close(ignored);
  gone_ = true;
  wake();
}

// ---- one request

Connection::Task<bool> Connection::serve_one() {
  RequestParser parser(limits_);
  if (!co_await read_header(parser)) co_return false;
  Request& request = parser.request();
  request.id = request_id_for(request);
  if (parser.state() == RequestParser::State::kFailed) {
    co_await refuse(request, parser.problem().failure, parser.problem().message);
    co_return false;
  }
  const Match match = match_route(request.method, request.path);
  if (const auto early = early_reply(request, match)) {
    // A body that nobody will read ends the connection.
    request.keep_alive = request.keep_alive && !request.has_body;
    co_return co_await write_response(request, *early) && keeps(request);
  }
  if (!co_await read_body(parser)) co_return false;
  const bool more = co_await answer(request, match);
  core_.bodies_bytes -= body_share_;
  body_share_ = 0;
  co_return more;
}

Connection::Task<bool> Connection::read_header(RequestParser& parser) {
  const bool first = std::exchange(first_, false);
  phase_ = Phase::kIdle;
  idle_since_ = Clock::now();
  set_deadline(first ? limits_.header_time : limits_.idle_time);
  while (true) {
    if (!buffer_.empty()) {
      if (phase_ == Phase::kIdle) {
        phase_ = Phase::kReading;
        if (!first) set_deadline(limits_.header_time);
      }
      buffer_.erase(0, parser.feed(buffer_));
      if (parser.state() != RequestParser::State::kHeader) break;
    }
    if (co_await receive() > 0) continue;
    if (expired_ && phase_ == Phase::kReading) {
      const Request none;
      co_await refuse(none, Failure::kReadTimeout, "the request's header did not arrive in time");
    }
    co_return false;
  }
  phase_ = Phase::kReading;
  clear_deadline();
  co_return true;
}

Connection::Task<bool> Connection::read_body(RequestParser& parser) {
  Request& request = parser.request();
  const auto* expect = request.header("expect");
  if (expect && request.has_body && buffer_.empty() && request.version == 11) {
    if (!co_await write("HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
  }
  const auto whole = Clock::now() + limits_.body_time;
  while (parser.state() == RequestParser::State::kBody) {
    if (!buffer_.empty()) {
      buffer_.erase(0, parser.feed(buffer_));
      const std::size_t held = parser.body_bytes();
      if (held > body_share_) {
        core_.bodies_bytes += held - body_share_;
        body_share_ = held;
      }
      if (held > limits_.small_body_bytes && core_.bodies_bytes > limits_.all_bodies_bytes) {
        co_await refuse(request, Failure::kOverloaded, "too many large requests at once");
        co_return false;
      }
      if (parser.state() != RequestParser::State::kBody) break;
    }
    set_deadline(limits_.body_progress_time);
    deadline_ = std::min(deadline_, whole);
    if (co_await receive() > 0) continue;
    if (expired_) co_await refuse(request, Failure::kReadTimeout, "the request's body did not arrive in time");
    co_return false;
  }
  clear_deadline();
  if (parser.state() == RequestParser::State::kFailed) {
    co_await refuse(request, parser.problem().failure, parser.problem().message);
    co_return false;
  }
  co_return true;
}

std::optional<Response> Connection::early_reply(const Request& request, const Match& match) const {
  const auto fail = [&](Failure failure, std::string_view message) { return error_response(failure, message, "", request.id); };
  if (request.method == "OPTIONS" && (!match.allow.empty() || request.path == "*")) {
    Response response;
    response.status = 204;
    response.content_type.clear();
    response.headers.push_back({"Allow", match.allow.empty() ? "GET, HEAD, POST, DELETE, OPTIONS" : match.allow});
    return response;
  }
  if (match.allow.empty()) return fail(Failure::kNoRoute, "no such route: " + log_text(request.path) + match.advice);
  if (!match.route) {
    Response response = fail(Failure::kMethod, log_text(request.method, 20) + " is not a method of " + log_text(request.path) + "; " + match.allow + " are");
    response.headers.push_back({"Allow", match.allow});
    return response;
  }
  if (match.route->needs_key && !core_.key.admits(request)) {
    return fail(Failure::kNoKey, "a valid API key is needed: Authorization: Bearer KEY, or x-api-key: KEY");
  }
  const auto* expect = request.header("expect");
  if (expect && to_lower(trim(*expect)) != "100-continue") return fail(Failure::kExpectation, "only Expect: 100-continue is supported");
  if (match.route->takes_body && request.has_body) {
    const auto* coding = request.header("content-encoding");
    if (coding && to_lower(trim(*coding)) != "identity") return fail(Failure::kMediaType, "a compressed body is not supported; send it as it is");
    if (!is_json(request)) return fail(Failure::kMediaType, "the body must be sent as Content-Type: application/json, in UTF-8");
  }
  if (match.route->takes_body && core_.service.stopping.load()) return fail(Failure::kStopping, "the server is shutting down");
  return std::nullopt;
}

Connection::Task<bool> Connection::answer(Request& request, const Match& match) {
  phase_ = Phase::kWorking;
  watch();
  Answer answer = co_await handle(request, match);
  request.body = {};
  if (auto* response = std::get_if<Response>(&answer)) {
    end_watch();
    co_return co_await write_response(request, *response) && keeps(request);
  }
  co_return co_await generate(request, std::get<Generation>(answer));
}

Connection::Task<Answer> Connection::handle(const Request& request, const Match& match) {
  const auto work = [this, &request, &match]() -> Answer {
    try {
      return match.route->handler(core_.service, request, match.id);
    } catch (const std::exception& e) {
      spdlog::error("id={} {} failed: {}", request.id, match.route->path, e.what());
      return error_response(Failure::kInternal, "the server failed at this request", "", request.id);
    }
  };
  if (!match.route->takes_body) co_return work();
  asio::thread_pool& pool = request.body.size() > limits_.small_body_bytes ? core_.large_work : core_.work;
  std::optional<Answer> answer;
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
      [&](auto handler) {
        asio::post(pool, [this, &answer, &work, handler = std::move(handler)]() mutable {
          answer = work();
          asio::post(core_.io, std::move(handler));
        });
      },
      asio::use_awaitable);
  co_return std::move(*answer);
}

// ---- bytes

Connection::Task<std::size_t> Connection::receive() {
  const std::size_t old = buffer_.size();
  buffer_.resize(old + kReadBytes);
  const auto [ec, n] = co_await socket_.async_read_some(asio::buffer(buffer_.data() + old, kReadBytes), kTuple);
  buffer_.resize(old + n);
  co_return expired_ ? 0 : n;  // a read that was complete when the deadline passed is not cancelled by it
}

Connection::Task<bool> Connection::write(std::string_view bytes) {
  while (!bytes.empty() && !gone_) {
    set_deadline(limits_.write_progress_time);
    const auto [ec, n] = co_await socket_.async_write_some(asio::buffer(bytes.data(), bytes.size()), kTuple);
    if (ec) {
      gone_ = true;
      if (expired_) gone_why_ = "client reads too slowly";
    }
    bytes.remove_prefix(n);
  }
  clear_deadline();
  co_return !gone_;
}

std::string Connection::common_headers(const Request& request) const {
  std::string out = core_.cors.headers(request);
  if (request.method == "OPTIONS" && request.header("origin")) out += core_.cors.preflight_headers(request);
  if (!request.id.empty()) out += "x-request-id: " + request.id + "\r\n";
  return out;
}

Connection::Task<bool> Connection::write_response(const Request& request, const Response& response) {
  if (response.status >= 400) {
    spdlog::info("refused id={} from {} {} {} status={}", request.id, peer_, log_text(request.method, 20), log_text(request.path), response.status);
  }
  const std::string framing = response.status == 204 ? "" : "Content-Length: " + std::to_string(response.body.size()) + "\r\n";
  std::string out = response_head(response, framing, common_headers(request), keeps(request));
  if (request.method != "HEAD") out += response.body;
  co_return co_await write(out);
}

Connection::Task<void> Connection::refuse(const Request& request, Failure failure, std::string_view message) {
  Request last = request;
  last.keep_alive = false;
  if (last.id.empty()) last.id = random_id("req-");
  const Response response = error_response(failure, message, "", last.id);
  co_await write_response(last, response);
}

// Closing with unread bytes would reset the connection and take the reply with it: say that nothing more comes, and read on for a while.
Connection::Task<void> Connection::linger() {
  if (gone_ || !socket_.is_open()) co_return;
  boost::system::error_code ec;
  socket_.shutdown(tcp::socket::shutdown_send, ec);
  if (ec) co_return;
  set_deadline(limits_.linger_time);
  const auto until = deadline_;
  std::size_t read = 0;
  while (read < kLingerBytes) {
    buffer_.clear();
    const std::size_t n = co_await receive();
    if (n == 0 || Clock::now() >= until) break;
    read += n;
  }
}

// ---- a client that leaves

void Connection::watch() {
  ++watch_turn_;
  const auto kind = buffer_.size() < limits_.pipelined_bytes ? tcp::socket::wait_read : tcp::socket::wait_error;
  socket_.async_wait(kind, [self = shared_from_this(), turn = watch_turn_](const boost::system::error_code& ec) {
    if (!ec && turn == self->watch_turn_) self->on_readable();
  });
}

void Connection::on_readable() {
  char bytes[4096];
  boost::system::error_code ec;
  const std::size_t n = socket_.read_some(asio::buffer(bytes), ec);
  if (ec == asio::error::would_block || ec == asio::error::try_again) return watch();
  if (ec) {  // end of file: a client that sends no more is taken to have left
    gone_ = true;
    return wake();
  }
  buffer_.append(bytes, n);  // pipelined
  watch();
}

void Connection::end_watch() {
  ++watch_turn_;
  boost::system::error_code ignored;
  socket_.cancel(ignored);
}

void Connection::wake() { wake_.cancel(); }

}  // namespace lockstep::server::http
