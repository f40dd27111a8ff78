// The engine's reply on its way to the client: one loop that waits for events, writes them, and notices a client that leaves.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "server/error_reply.h"
#include "server/http/connection.h"
#include "server/sse.h"

// g++ 12 takes the frame's own pair of new and delete for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace lockstep::server::http {
namespace asio = boost::asio;

struct Connection::Reply {
  const Request& request;
  openai::ReplyWriter writer;
  int choices, unfinished;   // of them
  std::string out;           // written by the writer, not yet sent
  engine::Finish finish;     // of all choices: the first failure, else the first finish; completion tokens summed
  bool failed = false;
  bool finished_any = false;
  bool opened = false;       // the stream's header is out
  bool cancelled = false;    // the engine was told

  void add(const engine::Finish& next) {
    const bool fails = next.reason == engine::FinishReason::kError || next.reason == engine::FinishReason::kCancelled;
    const std::int64_t tokens = finish.usage.completion_tokens + next.usage.completion_tokens;
    if (!finished_any || (fails && !failed)) finish = next;
    finish.usage.completion_tokens = tokens;
    finished_any = true;
    failed = failed || fails;
    --unfinished;
  }
};

Connection::Task<bool> Connection::generate(const Request& request, Generation& generation) {
  if (gone_) {
    spdlog::info("left id={} before its turn: {}", request.id, gone_why_);
    co_return false;
  }
  if (core_.service.stopping.load()) {
    end_watch();
    const Response stopping = error_response(Failure::kStopping, "the server is shutting down", "", request.id);
    co_return co_await write_response(request, stopping) && keeps(request);
  }
  inbox_ = std::make_shared<ReplyInbox>(core_.io.get_executor(), core_.replies, generation.shape.choices, [this] { on_events(); });
  core_.replies->begin();
  const auto handle = core_.service.engine.submit(std::move(generation.request), inbox_->sink());
  if (!handle.ok()) {
    core_.replies->end();
    inbox_->detach();
    end_watch();
    const Response refused = error_response(handle.error(), request.id);
    co_return co_await write_response(request, refused) && keeps(request);
  }
  handle_ = *handle;
  server_cancelled_ = false;
  const int choices = generation.shape.choices;
  Reply reply{request, openai::ReplyWriter(std::move(generation.shape)), choices, choices, {}, {}};
  // However this ends, the engine stops working for it and no event finds a connection that is not there.
  struct Release {
    Connection& connection;
    ~Release() {
      connection.inbox_->detach();
      if (connection.handle_) connection.core_.service.engine.cancel(*connection.handle_);
      connection.handle_.reset();
    }
  } release{*this};

  co_await follow(reply);
  handle_.reset();
  end_watch();
  log_reply(reply);
  if (gone_) co_return false;
  if (reply.failed) co_return co_await send_failure(reply);
  if (reply.writer.stream()) co_return co_await send_chunk(reply, true) && keeps(request) && request.version == 11;
  Response response;
  response.body = std::move(reply.out);
  co_return co_await write_response(request, response) && keeps(request);
}

Connection::Task<void> Connection::follow(Reply& reply) {
  while (true) {
    collect(reply);
    if ((gone_ || reply.failed) && !reply.cancelled) {
      reply.cancelled = true;
      core_.service.engine.cancel(*handle_);
    }
    if (reply.unfinished == 0) co_return;
    if (reply.writer.stream() && !gone_ && !reply.out.empty()) {
      co_await send_chunk(reply, false);
      continue;
    }
    const bool may_comment = reply.writer.stream() && !gone_;
    wake_.expires_after(may_comment ? limits_.stream_silence_time : std::chrono::hours(24));
    const auto [ec] = co_await wake_.async_wait(asio::as_tuple(asio::use_awaitable));
    if (!ec && may_comment && reply.out.empty()) reply.out += kStreamComment;
  }
}

void Connection::collect(Reply& reply) {
  for (engine::Event& event : inbox_->take()) {
    if (event.finish) reply.add(*event.finish);
    if (gone_ || reply.failed) continue;
    reply.writer.push(event, reply.out);
  }
}

void Connection::on_events() {
  if (inbox_->waiting_bytes() > limits_.outgoing_bytes && !gone_) {
    gone_ = true;
    gone_why_ = "client reads too slowly";
    boost::system::error_code ignored;
    socket_.close(ignored);
  }
  wake();
}

Connection::Task<bool> Connection::send_failure(Reply& reply) {
  const engine::Finish& finish = reply.finish;
  Failure failure = failure_of(finish.error.code);
  std::string message = finish.error.message;
  if (finish.reason == engine::FinishReason::kCancelled) {
    failure = server_cancelled_ ? Failure::kStopping : Failure::kCancelled;
    message = server_cancelled_ ? "the server is shutting down" : "the request was cancelled";
  }
  if (!reply.opened) {
    const Response response = error_response(failure, message, finish.error.subject, reply.request.id);
    co_return co_await write_response(reply.request, response) && keeps(reply.request);
  }
  reply.writer.fail(error_json(failure, message, finish.error.subject, reply.request.id), reply.out);
  co_return co_await send_chunk(reply, true) && keeps(reply.request) && reply.request.version == 11;
}

// Sends what the writer wrote as one HTTP chunk (HTTP/1.0 has none: the bytes as they are, ended by closing).
Connection::Task<bool> Connection::send_chunk(Reply& reply, bool last) {
  std::string bytes;
  if (!reply.opened) {
    reply.opened = true;
    Response head;
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    const bool chunked = reply.request.version == 11;
    bytes = response_head(head, chunked ? "Transfer-Encoding: chunked\r\n" : "", common_headers(reply.request), chunked && keeps(reply.request));
  }
  if (reply.request.version == 11) {
    if (!reply.out.empty()) bytes += fmt::format("{:x}\r\n", reply.out.size()) + reply.out + "\r\n";
    if (last) bytes += "0\r\n\r\n";
  } else {
    bytes += reply.out;
  }
  reply.out.clear();
  co_return co_await write(bytes);
}

void Connection::log_reply(const Reply& reply) const {
  const engine::Finish& finish = reply.finish;
  const engine::Usage& usage = finish.usage;
  const double per_second = finish.timings.decode_ms > 0 ? 1000.0 * static_cast<double>(usage.completion_tokens) / finish.timings.decode_ms : 0;
  std::string counts = fmt::format("id={} prompt={} cached={} tokens={} tok/s={:.1f} hash={}", reply.request.id, usage.prompt_tokens,
                                   usage.cached_tokens, usage.completion_tokens, per_second, finish.token_sha256.substr(0, 12));
  if (reply.choices > 1) counts += fmt::format(" (of choice 0) choices={}", reply.choices);
  if (gone_) spdlog::info("left {}: {}", counts, gone_why_);
  else if (finish.reason == engine::FinishReason::kCancelled) spdlog::info("cancelled {}", counts);
  else if (reply.failed) spdlog::error("failed {}: {}", counts, finish.error.message);
  else spdlog::info("done {} finish={}", counts, finish.reason == engine::FinishReason::kLength ? "length" : "stop");
}

}  // namespace lockstep::server::http
