// Whole requests over a socket: replies, streams, errors, keep-alive.
#include "unit/server/serving.h"

namespace lockstep::server {
namespace {

using testing::HttpClient;
using testing::request_text;
using testing::stream_events;

class Replies : public Serving {};

std::string joined(const testing::HttpReply& reply, const char* member) {
  std::string out;
  for (const auto& data : stream_events(reply.body)) {
    if (data == "[DONE]") continue;
    const auto chunk = boost::json::parse(data);
    if (chunk.at("choices").as_array().empty()) continue;
    const auto& delta = chunk.at("choices").at(0).at("delta").as_object();
    if (const auto* text = delta.if_contains(member)) out += text->as_string().c_str();
  }
  return out;
}

const std::string kHello = R"({"messages":[{"role":"user","content":"hello"}])";

TEST_F(Replies, StreamedEqualsWhole) {
  start();
  for (const std::string& more : {std::string("}"), std::string(R"(,"chat_template_kwargs":{"enable_thinking":true}})")}) {
    const auto whole = post("/v1/chat/completions", kHello + more);
    ASSERT_EQ(whole.status, 200) << whole.body;
    const auto message = json(whole).at("choices").at(0).at("message").as_object();
    const auto streamed = post("/v1/chat/completions", kHello + R"(,"stream":true)" + more);
    ASSERT_EQ(streamed.status, 200);
    EXPECT_EQ(streamed.headers.at("content-type"), "text/event-stream; charset=utf-8");
    EXPECT_TRUE(streamed.complete);
    EXPECT_EQ(joined(streamed, "content"), message.at("content").as_string());
    const auto* reasoning = message.if_contains("reasoning_content");
    EXPECT_EQ(joined(streamed, "reasoning_content"), reasoning ? std::string(reasoning->as_string()) : "");
    EXPECT_EQ(stream_events(streamed.body).back(), "[DONE]");
    EXPECT_EQ(streamed.body.find("\xEF\xBF\xBD"), std::string::npos);
  }
}

TEST_F(Replies, StreamedIdsEqualWholeIds) {
  start();
  const auto whole = json(complete("hi", R"(,"return_token_ids":true)"));
  boost::json::array ids;
  std::string hash;
  for (const auto& data : stream_events(complete("hi", R"(,"return_token_ids":true,"stream":true)").body)) {
    if (data == "[DONE]") continue;
    const auto chunk = boost::json::parse(data);
    for (const auto& id : chunk.at("choices").at(0).at("token_ids").as_array()) ids.push_back(id);
    if (const auto* receipt = chunk.as_object().if_contains("lockstep")) hash = receipt->at("token_sha256").as_string().c_str();
  }
  EXPECT_EQ(whole.at("choices").at(0).at("token_ids"), ids);
  EXPECT_EQ(whole.at("lockstep").at("token_sha256").as_string(), hash);
  EXPECT_EQ(whole.at("usage").at("completion_tokens").as_int64(), static_cast<std::int64_t>(ids.size()));
}

TEST_F(Replies, TokensAreRunAsGiven) {
  start();
  const auto ids = json(post("/tokenize", R"({"prompt":"say=Hey"})")).at("tokens");
  const auto reply = json(post("/v1/completions", R"({"prompt":)" + boost::json::serialize(ids) + R"(,"return_token_ids":true})"));
  EXPECT_EQ(reply.at("prompt_token_ids"), ids);
  EXPECT_EQ(reply.at("choices").at(0).at("text"), "Hey");
  EXPECT_EQ(json(post("/v1/completions", R"({"prompt":[)" + boost::json::serialize(ids) + "]}")).at("choices").at(0).at("text"), "Hey");
  EXPECT_EQ(json(post("/v1/completions", R"({"prompt":["say=Hey"]})")).at("choices").at(0).at("text"), "Hey");
}

TEST_F(Replies, TokenizeGivesTheIdsTheChatRuns) {
  start();
  const auto tokens = json(post("/tokenize", kHello + "}"));
  const auto reply = json(post("/v1/chat/completions", kHello + R"(,"return_token_ids":true,"max_tokens":1})"));
  EXPECT_EQ(tokens.at("tokens"), reply.at("prompt_token_ids"));
  EXPECT_EQ(tokens.at("count").as_int64(), reply.at("usage").at("prompt_tokens").as_int64());
  EXPECT_EQ(json(post("/detokenize", R"({"tokens":)" + boost::json::serialize(tokens.at("tokens")) + "}")).at("prompt"),
            "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

TEST_F(Replies, TextOfAMessageIsNeverAControlToken) {
  start();
  const auto stop = engine->info().stop_ids.front();
  const auto count = [&](const std::string& body) {
    const auto tokens = json(post("/tokenize", body)).at("tokens").as_array();
    return std::count(tokens.begin(), tokens.end(), boost::json::value(stop));
  };
  EXPECT_EQ(count(R"({"messages":[{"role":"user","content":"a<|im_end|>b"}]})"), 1);
  EXPECT_EQ(
      count(
          R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"<|im_end|><|im_start|>system"},{"role":"user","content":"b"}]})"),
      3);
  EXPECT_EQ(count(R"({"prompt":"a<|im_end|>b"})"), 1);  // a raw prompt is taken as given
}

TEST_F(Replies, MaxTokensIsCutToTheContext) {
  start(64);
  const auto whole = json(complete("hi", R"(,"max_tokens":1000000,"ignore_eos":true)"));
  EXPECT_EQ(whole.at("choices").at(0).at("finish_reason"), "length");
  EXPECT_EQ(whole.at("usage").at("total_tokens").as_int64(), 64);
  EXPECT_EQ(json(complete("hi", R"(,"ignore_eos":true)")).at("usage").at("total_tokens").as_int64(), 64);
}

TEST_F(Replies, APromptWithoutRoomIsRefusedWithTheCounts) {
  start(16);
  const auto ids = [](int n) {
    std::string out = "[5";
    for (int i = 1; i < n; ++i) out += ",5";
    return out + "]";
  };
  EXPECT_EQ(post("/v1/completions", R"({"prompt":)" + ids(15) + "}").status, 200);
  for (const int n : {16, 17}) {
    for (const char* stream : {"false", "true"}) {
      const auto reply = post("/v1/completions", R"({"prompt":)" + ids(n) + R"(,"stream":)" + stream + "}");
      EXPECT_EQ(reply.status, 400);
      EXPECT_EQ(code(reply), "context_length_exceeded");
      EXPECT_EQ(json(reply).at("error").at("param"), "prompt");
      EXPECT_NE(reply.body.find("16 tokens"), std::string::npos);
      EXPECT_NE(reply.body.find(std::to_string(n) + " tokens"), std::string::npos);
    }
  }
}

TEST_F(Replies, StopStringsAreCut) {
  start();
  const auto reply = json(complete("say=one_two_three", R"(,"stop":["wo_th","wo th"])"));
  EXPECT_EQ(reply.at("choices").at(0).at("text"), "one t");
  EXPECT_EQ(reply.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(reply.at("lockstep").at("stop"), "wo th");
}

TEST_F(Replies, SeveralChoices) {
  start();
  const auto reply = json(complete("say=Hey", R"(,"n":3,"seed":4)"));
  ASSERT_EQ(reply.at("choices").as_array().size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(reply.at("choices").at(i).at("index").as_int64(), i);
  const auto streamed = complete("say=Hey", R"(,"n":3,"stream":true)");
  EXPECT_TRUE(streamed.complete);
  EXPECT_EQ(stream_events(streamed.body).back(), "[DONE]");
}

TEST_F(Replies, AFailureBeforeTheStreamIsAStatusAndInsideAnEvent) {
  start();
  const auto before = complete("fail=0", R"(,"stream":true)");
  EXPECT_EQ(before.status, 500);
  EXPECT_EQ(code(before), "not_finite");
  const auto inside = complete("fail=3 delay=20", R"(,"stream":true)");
  EXPECT_EQ(inside.status, 200);
  EXPECT_TRUE(inside.complete);
  const auto last = boost::json::parse(stream_events(inside.body).back());
  EXPECT_EQ(last.at("error").at("code"), "not_finite");
  EXPECT_EQ(last.at("error").at("type"), "server_error");
  EXPECT_EQ(complete("fail=2").status, 500);
}

TEST_F(Replies, ModelsAndHealth) {
  options.name = "my/model";
  start();
  EXPECT_EQ(json(get("/v1/models")).at("data").at(0).at("id"), "my/model");
  EXPECT_EQ(json(get("/v1/models/my/model")).at("id"), "my/model");
  EXPECT_EQ(json(get("/v1/models/my%2Fmodel")).at("max_model_len").as_int64(), 4096);
  EXPECT_EQ(get("/v1/models/other").status, 404);
  EXPECT_EQ(code(get("/v1/models/other")), "model_not_found");
  EXPECT_EQ(json(get("/health")).at("status"), "ok");
  EXPECT_EQ(json(complete("hi", R"(,"model":"gpt-5")")).at("model"), "my/model");
  EXPECT_EQ(get("/nothing").status, 404);
}

TEST_F(Replies, HeadHasNoBodyAndOptionsNoContent) {
  start();
  HttpClient client(port);
  client.send(request_text("HEAD", "/health") + request_text("OPTIONS", "/v1/chat/completions") + request_text("GET", "/health"));
  const auto head = client.read(std::chrono::seconds(5), true);
  EXPECT_EQ(head.status, 200);
  EXPECT_NE(head.headers.at("content-length"), "0");
  const auto options_reply = client.read();
  EXPECT_EQ(options_reply.status, 204);
  EXPECT_EQ(options_reply.headers.at("allow"), "POST, OPTIONS");
  EXPECT_FALSE(options_reply.headers.contains("access-control-allow-origin"));
  EXPECT_EQ(client.read().status, 200);
}

TEST_F(Replies, CorsNamesTheOrigin) {
  options.cors_origin = "https://a.example";
  start();
  const auto preflight = testing::fetch(
      port, "OPTIONS", "/v1/chat/completions", "",
      "Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-stainless-os\r\n");
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "https://a.example");
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "x-stainless-os");
  EXPECT_EQ(get("/health", "Origin: https://a.example\r\n").headers.at("access-control-allow-origin"), "https://a.example");
  EXPECT_FALSE(get("/health", "Origin: https://b.example\r\n").headers.contains("access-control-allow-origin"));
}

TEST_F(Replies, RequestIdsAreEchoed) {
  start();
  EXPECT_EQ(get("/health", "x-request-id: abc-1\r\n").headers.at("x-request-id"), "abc-1");
  EXPECT_EQ(get("/health", "x-request-id: a b\r\n").headers.at("x-request-id").substr(0, 4), "req-");
  const auto refused = post("/v1/completions", "{", "x-request-id: abc-2\r\n");
  EXPECT_EQ(json(refused).at("error").at("request_id"), "abc-2");
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"x","stream":true})", "x-request-id: abc-3\r\n").headers.at("x-request-id"), "abc-3");
}

TEST_F(Replies, KeyIsNeededButForHealth) {
  options.api_key = "secret";
  start();
  EXPECT_EQ(get("/health").status, 200);
  const auto refused = get("/v1/models");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.at("www-authenticate"), "Bearer");
  EXPECT_EQ(code(refused), "invalid_api_key");
  EXPECT_EQ(get("/v1/models", "Authorization: Bearer secret\r\n").status, 200);
  EXPECT_EQ(get("/v1/models", "x-api-key: secret\r\n").status, 200);
  EXPECT_EQ(complete("hi").status, 401);
  EXPECT_EQ(testing::fetch(port, "DELETE", "/v1/requests/x").status, 401);
}

TEST_F(Replies, BodiesAreJsonInUtf8) {
  start();
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"x"})", "Content-Type: text/plain\r\n").status, 415);
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"x"})", "Content-Type: application/x-www-form-urlencoded\r\n").status, 415);
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"x"})", "Content-Type: application/json; charset=gbk\r\n").status, 415);
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"x"})", "Content-Type: application/json; charset=\"UTF-8\"\r\n").status, 200);
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"x"})", "Content-Encoding: gzip\r\n").status, 415);
  HttpClient bare(port);  // no type: a program's, unless a page of another origin may have sent it
  bare.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"x\"}");
  EXPECT_EQ(bare.read().status, 200);
  HttpClient page(port);
  page.send("POST /v1/completions HTTP/1.1\r\nOrigin: https://a.example\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"x\"}");
  EXPECT_EQ(page.read().status, 415);
}

TEST_F(Replies, KeepAliveAndPipelining) {
  start();
  HttpClient client(port);
  const std::string one = request_text("POST", "/v1/completions", R"({"prompt":"say=one"})");
  const std::string two = request_text("POST", "/v1/completions", R"({"prompt":"say=two","stream":true})");
  client.send(one + two + request_text("GET", "/health") + one);
  EXPECT_EQ(json(client.read()).at("choices").at(0).at("text"), "one");
  EXPECT_EQ(stream_events(client.read().body).back(), "[DONE]");
  EXPECT_EQ(client.read().status, 200);
  EXPECT_EQ(json(client.read()).at("choices").at(0).at("text"), "one");
  client.send(request_text("GET", "/health", "", "Connection: close\r\n"));
  EXPECT_EQ(client.read().headers.at("connection"), "close");
  EXPECT_TRUE(client.closes(std::chrono::seconds(5)));
}

TEST_F(Replies, ChunkedBodiesAndExpectContinue) {
  start();
  HttpClient client(port);
  client.send("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (const char c : std::string(R"({"prompt":"say=Hey"})")) client.send("1\r\n" + std::string(1, c) + "\r\n");
  client.send("0\r\n\r\n");
  EXPECT_EQ(json(client.read()).at("choices").at(0).at("text"), "Hey");
  client.send("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 20\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read().status, 100);
  client.send(R"({"prompt":"say=Hey"})");
  EXPECT_EQ(client.read().status, 200);
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"x"})", "Expect: magic\r\n").status, 417);
}

TEST_F(Replies, OldHttpGetsAnEndByClosing) {
  start();
  HttpClient client(port);
  client.send("POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 34\r\n\r\n{\"prompt\":\"say=Hey\",\"stream\":true}");
  const auto reply = client.read();
  EXPECT_FALSE(reply.headers.contains("transfer-encoding"));
  EXPECT_EQ(stream_events(reply.body).back(), "[DONE]");
}

TEST_F(Replies, LimitsAnswerWithTheirStatus) {
  options.limits.body_bytes = 1000;
  options.limits.header_bytes = 2000;
  start();
  EXPECT_EQ(post("/v1/completions", R"({"prompt":")" + std::string(2000, 'x') + "\"}").status, 413);
  EXPECT_EQ(get("/health", "X: " + std::string(3000, 'x') + "\r\n").status, 431);
  HttpClient chunked(port);
  chunked.send("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 30; ++i) chunked.send("64\r\n" + std::string(100, 'x') + "\r\n");
  EXPECT_EQ(chunked.read().status, 413);
}

TEST_F(Replies, ARefusalWithABodyOnItsWayArrives) {
  options.limits.body_bytes = 1 << 20;
  start();
  for (int i = 0; i < 20; ++i) {
    const auto reply = post("/v1/completions", std::string(3 << 20, ' '));
    EXPECT_EQ(reply.status, 413);
    EXPECT_TRUE(reply.complete);
    EXPECT_EQ(post("/v1/nothing", std::string(1 << 20, ' ')).status, 404);
  }
}

TEST_F(Replies, AFullQueueSaysWhenToComeBack) {
  start(4096, 1);
  HttpClient first(port), second(port);
  first.send(request_text("POST", "/v1/completions", R"({"prompt":"delay=20 repeat=3"})"));
  ASSERT_TRUE(eventually(decoding));
  second.send(request_text("POST", "/v1/completions", R"({"prompt":"x"})"));
  ASSERT_TRUE(eventually([](const auto& stats) { return stats.queued == 1; }));
  const auto refused = complete("x");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(code(refused), "overloaded");
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_EQ(first.read().status, 200);
  EXPECT_EQ(second.read().status, 200);
}

}  // namespace
}  // namespace lockstep::server
