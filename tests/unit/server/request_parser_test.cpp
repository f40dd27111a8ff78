#include "server/http/request_parser.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::server::http {
namespace {

struct Outcome {
  RequestParser::State state;
  int status = 0;  // of a failure
  Request request;
  std::string rest;
};

// Feeds `text` in pieces of `step` bytes, as a connection does.
Outcome read(const std::string& text, std::size_t step, const Limits& limits) {
  RequestParser parser(limits);
  std::string buffer;
  std::size_t at = 0;
  using State = RequestParser::State;
  while (parser.state() != State::kDone && parser.state() != State::kFailed) {
    const auto before = parser.state();
    buffer.erase(0, parser.feed(buffer));
    if (parser.state() != before) continue;
    if (at == text.size()) break;
    const std::size_t n = std::min(step, text.size() - at);
    buffer += text.substr(at, n);
    at += n;
  }
  Outcome out{parser.state(), 0, parser.request(), buffer + text.substr(at)};
  if (out.state == State::kFailed) out.status = failure_row(parser.problem().failure).status;
  return out;
}

Limits small() {
  Limits limits;
  limits.header_bytes = 300;
  limits.body_bytes = 20;
  return limits;
}

constexpr std::size_t kSteps[] = {1, 2, 7, 100000};

void expect_body(const std::string& text, const std::string& body, const std::string& rest = "") {
  for (const std::size_t step : kSteps) {
    const Outcome out = read(text, step, small());
    ASSERT_EQ(out.state, RequestParser::State::kDone) << text << " in " << step;
    EXPECT_EQ(out.request.body, body);
    EXPECT_EQ(out.rest, rest);
  }
}
void expect_status(const std::string& text, int status) {
  for (const std::size_t step : kSteps) {
    const Outcome out = read(text, step, small());
    ASSERT_EQ(out.state, RequestParser::State::kFailed) << text << " in " << step;
    EXPECT_EQ(out.status, status) << text;
  }
}

TEST(RequestParser, ReadsARequestHoweverItIsCut) {
  for (const std::size_t step : kSteps) {
    const Outcome out = read("GET /v1/models?x=1 HTTP/1.1\r\nHost: a\r\nX-Two:  b \r\n\r\n", step, small());
    ASSERT_EQ(out.state, RequestParser::State::kDone);
    EXPECT_EQ(out.request.method, "GET");
    EXPECT_EQ(out.request.path, "/v1/models");
    EXPECT_EQ(out.request.query, "x=1");
    EXPECT_EQ(*out.request.header("x-two"), "b");
    EXPECT_TRUE(out.request.keep_alive);
    EXPECT_FALSE(out.request.has_body);
  }
}

TEST(RequestParser, ReadsBodiesAndLeavesWhatFollows) {
  expect_body("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP", "hello", "GET / HTTP");
  expect_body("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: v\r\n\r\nNEXT", "abcde", "NEXT");
  expect_body("\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", "x");
}

TEST(RequestParser, KeepsAliveAsTheVersionSays) {
  EXPECT_FALSE(read("GET / HTTP/1.0\r\n\r\n", 100, small()).request.keep_alive);
  EXPECT_TRUE(read("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 100, small()).request.keep_alive);
  EXPECT_FALSE(read("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 100, small()).request.keep_alive);
}

TEST(RequestParser, AbsoluteFormHasAPath) { EXPECT_EQ(read("GET http://host:1/z?q HTTP/1.1\r\n\r\n", 100, small()).request.path, "/z"); }

TEST(RequestParser, RefusesTwoFramings) {
  expect_status("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", 400);
  expect_status("POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
  expect_status("POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", 400);
  expect_status("POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 400);
  expect_status("POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 400);
  expect_status("POST / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n", 400);
  expect_status("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
}

TEST(RequestParser, RefusesWhatIsNotHttp) {
  expect_status("GET / HTTP/2.0\r\n\r\n", 400);
  expect_status("GET /\r\n\r\n", 400);
  expect_status("\x16\x03\x01\x02\x01\x03\x03", 400);  // a TLS hello
  expect_status("GET / HTTP/1.1\r\nA : b\r\n\r\n", 400);
  expect_status("GET / HTTP/1.1\r\nno colon\r\n\r\n", 400);
  expect_status("POST / HTTP/1.1\r\nContent-Length: -3\r\n\r\n", 400);
  expect_status("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400);
  expect_status("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400);
  expect_status("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", 400);
}

TEST(RequestParser, BoundsHeaderBodyAndChunkHeaders) {
  expect_status("GET / HTTP/1.1\r\nX: " + std::string(400, 'a') + "\r\n\r\n", 431);
  expect_status("GET /" + std::string(400, 'a'), 431);
  expect_status("POST / HTTP/1.1\r\nContent-Length: 21\r\n\r\n", 413);
  expect_status("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n0123456789012345\r\n10\r\n0123456789012345\r\n0\r\n\r\n", 413);
  expect_status("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;" + std::string(400, 'x'), 400);
}

}  // namespace
}  // namespace lockstep::server::http
