#include "server/http/request_parser.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>

namespace lockstep::server::http {
namespace beast_http = boost::beast::http;
namespace {

// A body that grows with the bytes that arrive: a Content-Length alone reserves nothing.
struct GrowingBody {
  using value_type = std::string;
  class reader {
   public:
    template <bool isRequest, class Fields>
    reader(beast_http::header<isRequest, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<std::uint64_t>&, boost::beast::error_code& ec) { ec = {}; }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, boost::beast::error_code& ec) {
      std::size_t n = 0;
      for (auto it = boost::asio::buffer_sequence_begin(buffers); it != boost::asio::buffer_sequence_end(buffers); ++it) {
        const boost::asio::const_buffer part = *it;
        body_.append(static_cast<const char*>(part.data()), part.size());
        n += part.size();
      }
      ec = {};
      return n;
    }
    void finish(boost::beast::error_code& ec) { ec = {}; }

   private:
    value_type& body_;
  };
};

}  // namespace

struct RequestParser::Beast {
  beast_http::request_parser<GrowingBody> parser;
};

RequestParser::RequestParser(const Limits& limits) : limits_(limits), beast_(std::make_unique<Beast>()) {
  beast_->parser.header_limit(static_cast<std::uint32_t>(limits.header_bytes));
  beast_->parser.body_limit(boost::none);  // checked here, with the header's fields at hand
}
RequestParser::~RequestParser() = default;

std::size_t RequestParser::body_bytes() const { return state_ == State::kDone ? request_.body.size() : beast_->parser.get().body().size(); }

void RequestParser::fail(Failure failure, std::string message) {
  state_ = State::kFailed;
  problem_ = {failure, std::move(message)};
}

std::size_t RequestParser::feed(std::string_view bytes) {
  std::size_t taken = 0;
  // RFC 9112 2.2: empty lines before a request line are skipped.
  if (state_ == State::kHeader && !beast_->parser.got_some()) {
    while (taken < bytes.size() && (bytes[taken] == '\r' || bytes[taken] == '\n')) ++taken;
  }
  while (taken < bytes.size() && (state_ == State::kHeader || state_ == State::kBody)) {
    boost::beast::error_code ec;
    const std::string_view rest = bytes.substr(taken);
    taken += beast_->parser.put(boost::asio::buffer(rest.data(), rest.size()), ec);
    if (ec == beast_http::error::need_more) {
      if (bytes.size() - taken >= limits_.header_bytes) {
        if (state_ == State::kHeader) fail(Failure::kHeadersTooLarge, "the request's header is larger than " + std::to_string(limits_.header_bytes) + " bytes");
        else fail(Failure::kBadHttp, "a chunk header or trailer is too long");
      }
      return taken;
    }
    if (ec == beast_http::error::header_limit) {
      fail(Failure::kHeadersTooLarge, "the request's header is larger than " + std::to_string(limits_.header_bytes) + " bytes");
      return taken;
    }
    if (ec) {
      fail(Failure::kBadHttp, "the request is not valid HTTP: " + ec.message());
      return taken;
    }
    if (state_ == State::kHeader && beast_->parser.is_header_done()) {
      header_done();
      if (beast_->parser.is_done() && state_ == State::kBody) state_ = State::kDone;
      return taken;
    }
    if (beast_->parser.get().body().size() > limits_.body_bytes) {
      fail(Failure::kBodyTooLarge, "the body is larger than " + std::to_string(limits_.body_bytes) + " bytes");
      return taken;
    }
    if (beast_->parser.is_done()) {
      request_.body = std::move(beast_->parser.get().body());
      state_ = State::kDone;
    }
  }
  return taken;
}

void RequestParser::header_done() {
  const auto& message = beast_->parser.get();
  state_ = State::kBody;
  request_.method = std::string(message.method_string());
  request_.version = static_cast<int>(message.version());
  request_.keep_alive = message.keep_alive();

  std::string target(message.target());
  if (target.starts_with("http://") || target.starts_with("https://")) {  // absolute form
    const auto slash = target.find('/', target.find("//") + 2);
    target = slash == std::string::npos ? "/" : target.substr(slash);
  }
  const auto question = target.find('?');
  request_.path = target.substr(0, question);
  if (question != std::string::npos) request_.query = target.substr(question + 1);

  int lengths = 0, encodings = 0;
  for (const auto& field : message) {
    Header header{to_lower(std::string_view(field.name_string().data(), field.name_string().size())),
                  std::string(field.value().data(), field.value().size())};
    lengths += header.name == "content-length";
    encodings += header.name == "transfer-encoding";
    request_.headers.push_back(std::move(header));
  }
  request_.chunked = beast_->parser.chunked();
  if (encodings > 0) {
    // Two framings, or one that is not understood, are how requests are smuggled past a proxy.
    if (lengths > 0) return fail(Failure::kBadHttp, "Content-Length and Transfer-Encoding cannot stand together");
    if (encodings > 1 || to_lower(trim(*request_.header("transfer-encoding"))) != "chunked") {
      return fail(Failure::kBadHttp, "a Transfer-Encoding other than chunked is not supported");
    }
    if (request_.version == 10) return fail(Failure::kBadHttp, "HTTP/1.0 has no Transfer-Encoding");
  }
  if (lengths > 1) return fail(Failure::kBadHttp, "Content-Length stands twice");
  if (const auto length = beast_->parser.content_length()) request_.content_length = *length;
  request_.has_body = request_.chunked || request_.content_length > 0;
  if (request_.content_length > limits_.body_bytes) {
    fail(Failure::kBodyTooLarge, "the body has " + std::to_string(request_.content_length) + " bytes; at most " + std::to_string(limits_.body_bytes) +
                                     " are taken");
  }
}

}  // namespace lockstep::server::http
