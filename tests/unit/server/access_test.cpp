#include "server/access.h"

#include <gtest/gtest.h>

#include "server/error_reply.h"
#include "server/routes.h"
#include "server/service.h"

namespace lockstep::server {
namespace {

http::Request with(std::string name, std::string value) {
  http::Request request;
  request.headers.push_back({std::move(name), std::move(value)});
  return request;
}

TEST(ApiKey, AdmitsTheKeyAlone) {
  const ApiKey key("secret");
  EXPECT_TRUE(key.admits(with("authorization", "Bearer secret")));
  EXPECT_TRUE(key.admits(with("authorization", "bearer  secret ")));
  EXPECT_TRUE(key.admits(with("x-api-key", "secret")));
  EXPECT_FALSE(key.admits(with("authorization", "Bearer secre")));
  EXPECT_FALSE(key.admits(with("authorization", "Bearer secret2")));
  EXPECT_FALSE(key.admits(with("authorization", "Basic secret")));
  EXPECT_FALSE(key.admits(with("authorization", "secret")));
  EXPECT_FALSE(key.admits(with("x-api-key", "")));
  EXPECT_FALSE(key.admits({}));
  EXPECT_TRUE(ApiKey("").admits({}));
}

TEST(Cors, NamesOnlyOriginsItWasGiven) {
  const auto none = Cors::parse("");
  EXPECT_EQ(none->headers(with("origin", "https://a.example")), "");
  const auto any = Cors::parse("*");
  EXPECT_NE(any->headers({}).find("Access-Control-Allow-Origin: *\r\n"), std::string::npos);
  const auto two = Cors::parse("https://a.example, https://b.example");
  EXPECT_NE(two->headers(with("origin", "https://b.example")).find("Allow-Origin: https://b.example\r\n"), std::string::npos);
  EXPECT_EQ(two->headers(with("origin", "https://c.example")).find("Allow-Origin"), std::string::npos);
  EXPECT_FALSE(Cors::parse("https://a.example\r\nX: y").ok());
  EXPECT_FALSE(Cors::parse("a,,b").ok());
}

TEST(Cors, PreflightEchoesSaneHeaderNames) {
  const auto any = Cors::parse("*");
  EXPECT_NE(any->preflight_headers(with("access-control-request-headers", "x-stainless-os, authorization")).find("x-stainless-os, authorization"),
            std::string::npos);
  EXPECT_EQ(any->preflight_headers(with("access-control-request-headers", "a\x01")).find('\x01'), std::string::npos);
}

TEST(RequestId, SaneOnesAreKept) {
  EXPECT_EQ(request_id_for(with("x-request-id", "abc-1")), "abc-1");
  for (const std::string& bad : {std::string(), std::string("a b"), std::string("a\x7f"), std::string("\xC3\xA4"), std::string(129, 'x')}) {
    EXPECT_EQ(request_id_for(with("x-request-id", bad)).substr(0, 4), "req-");
  }
  EXPECT_NE(request_id_for({}), request_id_for({}));
}

TEST(Loopback, IsThisMachineAlone) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "localhost", "::1"}) EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host : {"0.0.0.0", "::", "192.168.1.1", "example.org", ""}) EXPECT_FALSE(is_loopback(host)) << host;
}

TEST(Routes, AreFoundByMethodAndPath) {
  EXPECT_NE(match_route("POST", "/v1/chat/completions").route, nullptr);
  EXPECT_NE(match_route("HEAD", "/health").route, nullptr);
  EXPECT_EQ(match_route("GET", "/v1/models/org/name%20x").id, "org/name x");
  const Match wrong = match_route("GET", "/v1/chat/completions");
  EXPECT_EQ(wrong.route, nullptr);
  EXPECT_EQ(wrong.allow, "POST, OPTIONS");
  EXPECT_EQ(match_route("GET", "/health").allow, "GET, HEAD, OPTIONS");
  EXPECT_TRUE(match_route("GET", "/nothing").allow.empty());
  EXPECT_TRUE(match_route("GET", "/v1/models/").allow.empty());
  EXPECT_TRUE(match_route("GET", "/v1/models/%zz").allow.empty());
  EXPECT_NE(match_route("POST", "/chat/completions").advice.find("/v1/chat/completions"), std::string::npos);
  EXPECT_NE(match_route("POST", "/v1/v1/chat/completions").advice.find("/v1/chat/completions"), std::string::npos);
}

TEST(Routes, OnlyHealthIsOpen) {
  for (const Route& route : route_table()) EXPECT_EQ(route.needs_key, route.path != "/health") << route.path;
}

TEST(ErrorReply, HasTheApisForm) {
  EXPECT_EQ(error_json(Failure::kInvalidRequest, "no \"x\"", "temperature", ""),
            R"({"error":{"message":"no \"x\"","type":"invalid_request_error","param":"temperature","code":"invalid_value"}})");
  EXPECT_EQ(error_json(Failure::kInternal, "m", "", "r1"),
            R"({"error":{"message":"m","type":"server_error","param":null,"code":"internal_error","request_id":"r1"}})");
  for (const FailureRow& row : failure_table()) {
    EXPECT_EQ(row.type == "server_error", row.status >= 500) << row.code;
    const auto response = error_response(row.failure, "m", "", "");
    EXPECT_EQ(response.status, row.status);
    EXPECT_NE(http::reason_phrase(row.status), "Status");
  }
}

TEST(OnceLog, SaysYesOnceAndIsBounded) {
  OnceLog once;
  EXPECT_TRUE(once.first("a"));
  EXPECT_FALSE(once.first("a"));
  int yes = 0;
  for (int i = 0; i < 1000; ++i) yes += once.first(std::to_string(i));
  EXPECT_EQ(yes, 255);
}

TEST(LogText, IsOneSafeLine) { EXPECT_EQ(log_text("a\n\x1b[31m\xC3\xA4" + std::string(100, 'x'), 10), "a\\x0a\\x1b[31m\\xc3\\xa4x..."); }

}  // namespace
}  // namespace lockstep::server
