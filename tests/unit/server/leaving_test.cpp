// Clients that leave, stall or crowd; the server's own end.
#include <sys/socket.h>

#include "unit/server/serving.h"

namespace lockstep::server {
namespace {

using namespace std::chrono_literals;
using testing::HttpClient;
using testing::request_text;

class Leaving : public Serving {
 protected:
  static std::string long_request(bool stream, const std::string& words = "delay=20 repeat=100") {
    return request_text("POST", "/v1/completions", R"({"prompt":")" + words + R"(","stream":)" + (stream ? "true" : "false") + "}");
  }
};

TEST_F(Leaving, IsNoticedWhileDecodingFillingAndQueued) {
  start();
  for (const bool stream : {true, false}) {
    for (const bool reset : {true, false}) {
      for (const char* words : {"delay=20 repeat=100", "fill=60000"}) {
        auto client = std::make_unique<HttpClient>(port);
        client->send(long_request(stream, words));
        ASSERT_TRUE(eventually([](const auto& stats) { return stats.decoding + stats.filling > 0; }));
        if (reset) client->reset();
        client.reset();
        EXPECT_TRUE(eventually(none_live, 2s)) << stream << reset << words;
      }
      HttpClient running(port);
      running.send(long_request(stream, "fill=60000"));
      ASSERT_TRUE(eventually([](const auto& stats) { return stats.filling > 0; }));
      auto queued = std::make_unique<HttpClient>(port);
      queued->send(long_request(stream));
      ASSERT_TRUE(eventually([](const auto& stats) { return stats.queued == 1; }));
      queued.reset();
      EXPECT_TRUE(eventually([](const auto& stats) { return stats.queued == 0; }, 2s));
      EXPECT_EQ(engine->stats().filling, 1);
      running.close();
      EXPECT_TRUE(eventually(none_live, 2s));
    }
  }
}

TEST_F(Leaving, AClientThatSendsNoMoreHasLeft) {
  start();
  HttpClient client(port);
  client.send(long_request(true));
  ASSERT_TRUE(eventually(decoding));
  client.shutdown_write();
  EXPECT_TRUE(eventually(none_live, 2s));
}

TEST_F(Leaving, PipelinedBytesDoNotHideIt) {
  options.limits.pipelined_bytes = 1000;
  start();
  auto client = std::make_unique<HttpClient>(port);
  client->send(long_request(true));
  ASSERT_TRUE(eventually(decoding));
  for (int i = 0; i < 100; ++i) client->send(request_text("GET", "/health"));
  client->reset();
  EXPECT_TRUE(eventually(none_live, 2s));
}

TEST_F(Leaving, ASlowReaderIsDropped) {
  options.limits.outgoing_bytes = 20'000;
  options.limits.send_buffer_bytes = 16'000;
  start(1 << 20);
  HttpClient client(port);
  client.set_receive_buffer(4096);
  client.send(request_text("POST", "/v1/completions", R"({"prompt":"repeat=1000","stream":true,"ignore_eos":true})"));
  ASSERT_TRUE(eventually(decoding));
  EXPECT_TRUE(eventually(none_live, 20s));
  EXPECT_EQ(complete("say=Hey").status, 200);
}

TEST_F(Leaving, AReaderThatStopsIsDroppedInTime) {
  options.limits.write_progress_time = 300ms;
  options.limits.send_buffer_bytes = 16'000;
  options.limits.outgoing_bytes = 1 << 30;  // not by its backlog
  start(1 << 20);
  HttpClient client(port);
  client.set_receive_buffer(4096);
  client.send(
      request_text("POST", "/v1/completions",
                   R"({"prompt":"repeat=3000 delay=0","stream":true,"ignore_eos":true,"max_tokens":60000,"return_token_ids":true})"));
  ASSERT_TRUE(eventually(decoding));
  EXPECT_TRUE(eventually(none_live, 20s));
}

TEST_F(Leaving, CancelByRequestId) {
  start();
  EXPECT_EQ(testing::fetch(port, "DELETE", "/v1/requests/nobody").status, 404);
  for (const bool stream : {true, false}) {
    HttpClient client(port);
    client.send(request_text("POST", "/v1/completions", R"({"prompt":"delay=20 repeat=100","stream":)" + std::string(stream ? "true" : "false") + "}",
                             "x-request-id: mine\r\n"));
    ASSERT_TRUE(eventually(decoding));
    std::this_thread::sleep_for(100ms);
    const auto cancelled = testing::fetch(port, "DELETE", "/v1/requests/mine");
    EXPECT_EQ(cancelled.status, 200);
    EXPECT_EQ(json(cancelled).at("cancelled").as_int64(), 1);
    const auto reply = client.read();
    EXPECT_EQ(reply.status, stream ? 200 : 499);
    EXPECT_TRUE(reply.complete);
    const auto error = boost::json::parse(stream ? testing::stream_events(reply.body).back() : reply.body);
    EXPECT_EQ(error.at("error").at("code"), "request_cancelled");
    EXPECT_TRUE(eventually(none_live, 2s));
  }
}

TEST_F(Leaving, ASilentStreamGetsComments) {
  options.limits.stream_silence_time = 50ms;
  start();
  const auto reply = post("/v1/completions", R"({"prompt":"say=Hey fill=300","stream":true})");
  EXPECT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.body.starts_with(": waiting\n\n"));
  EXPECT_EQ(testing::stream_events(reply.body).back(), "[DONE]");
}

TEST_F(Leaving, SlowAndSilentClientsTimeOut) {
  options.limits.header_time = 300ms;
  options.limits.body_progress_time = 300ms;
  options.limits.idle_time = 300ms;
  start();
  HttpClient silent(port), half_header(port), half_body(port), chunk(port), idle(port);
  half_header.send("GET /health HTTP/1.1\r\nX: ");
  half_body.send("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{");
  chunk.send("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{");
  idle.send(request_text("GET", "/health"));
  EXPECT_EQ(idle.read().status, 200);
  EXPECT_EQ(half_header.read(5s).status, 408);
  EXPECT_EQ(half_body.read(5s).status, 408);
  EXPECT_EQ(chunk.read(5s).status, 408);
  EXPECT_TRUE(silent.closes(5s));
  EXPECT_TRUE(idle.closes(5s));
}

TEST_F(Leaving, ADribblingHeaderOrBodyTimesOutAsAWhole) {
  options.limits.header_time = 400ms;
  options.limits.body_time = 400ms;
  start();
  HttpClient header(port), body(port);
  header.send("GET /health HTTP/1.1\r\nX: ");
  body.send("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 10000\r\n\r\n");
  for (int i = 0; i < 20; ++i) {
    header.send("x");
    body.send(" ");
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_EQ(header.read(5s).status, 408);
  EXPECT_EQ(body.read(5s).status, 408);
}

// A deadline that passes while bytes are there to read holds as well: a client that floods for a while and then is silent does not stay.
TEST_F(Leaving, AFloodOfEmptyLinesDoesNotOutliveItsDeadline) {
  options.limits.header_time = 200ms;
  start();
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(std::make_unique<HttpClient>(port));
  {
    std::vector<std::jthread> floods;
    for (auto& client : clients)
      floods.emplace_back([&client] {
        const std::string lines(16384, '\n');
        for (const auto until = std::chrono::steady_clock::now() + 500ms; std::chrono::steady_clock::now() < until;) client->send(lines);
      });
  }
  for (auto& client : clients) {
    std::optional<std::string> bytes;
    while ((bytes = client->read_some(3s)) && !bytes->empty()) continue;  // the answer, if it was not lost with the connection
    EXPECT_FALSE(bytes.has_value()) << "still open";
  }
}

TEST_F(Leaving, ManySilentConnectionsDoNotKeepANewClientOut) {
  start();
  std::vector<std::unique_ptr<HttpClient>> crowd;
  for (int i = 0; i < 200; ++i) {
    crowd.push_back(std::make_unique<HttpClient>(port));
    if (i % 2) crowd.back()->send("POST /v1/completions HTTP/1.1\r\nContent-Length: 1000\r\nContent-Type: application/json\r\n\r\n{");
  }
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(complete("say=Hey").status, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - before, 2s);
}

TEST_F(Leaving, TooManyConnectionsAreToldUnlessAnIdleOneCanGo) {
  options.limits.connections = 3;
  start();
  HttpClient a(port), b(port), c(port);
  for (HttpClient* client : {&a, &b, &c}) client->send("GET /health HTTP/1.1\r\n");  // reading, not idle
  std::this_thread::sleep_for(200ms);
  HttpClient refused(port);
  const auto reply = refused.read(5s);
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(code(reply), "too_many_connections");
  EXPECT_TRUE(reply.headers.contains("retry-after"));
  a.send("\r\n");
  EXPECT_EQ(a.read(5s).status, 200);  // idle now
  refused.close();
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_TRUE(a.closes(5s));
}

TEST_F(Leaving, LargeBodiesTogetherAreBounded) {
  options.limits.small_body_bytes = 1000;
  options.limits.all_bodies_bytes = 100'000;
  start();
  HttpClient holder(port);
  holder.send("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 90001\r\n\r\n" + std::string(90000, ' '));
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(post("/v1/completions", R"({"prompt":")" + std::string(20000, 'x') + "\"}").status, 503);
  EXPECT_EQ(complete("say=Hey").status, 200);
  holder.close();
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(post("/v1/completions", std::string(20000, ' ') + R"({"prompt":"say=Hey"})").status, 200);
}

TEST_F(Leaving, StopDrainsThenCancels) {
  start();
  HttpClient finishes(port), idle(port);
  idle.send(request_text("GET", "/health"));
  idle.read();
  finishes.send(long_request(false, "say=Hey delay=200"));
  ASSERT_TRUE(eventually(decoding));
  std::thread stopper([&] { server->stop(10); });
  EXPECT_TRUE(idle.closes(5s));
  const auto reply = finishes.read();
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("connection"), "close");
  stopper.join();
  EXPECT_FALSE(HttpClient(port).connected());
}

TEST_F(Leaving, StopCancelsWhatDoesNotFinish) {
  start();
  HttpClient streamed(port), whole(port);
  streamed.send(long_request(true));
  ASSERT_TRUE(eventually(decoding));
  whole.send(long_request(false));
  ASSERT_TRUE(eventually([](const auto& stats) { return stats.queued == 1; }));
  std::thread stopper([&] { server->stop(0.2); });
  const auto events = testing::stream_events(streamed.read().body);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(boost::json::parse(events.back()).at("error").at("code"), "server_stopping");
  const auto reply = whole.read();
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(code(reply), "server_stopping");
  stopper.join();
}

TEST_F(Leaving, StoppingRefusesNewWorkOnOpenConnections) {
  start();
  HttpClient running(port), other(port);
  other.send("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\n");  // a header on its way keeps it open
  running.send(long_request(true, "say=Hey delay=300"));
  ASSERT_TRUE(eventually(decoding));
  std::thread stopper([&] { server->stop(10); });
  std::this_thread::sleep_for(100ms);
  other.send("Content-Length: 14\r\n\r\n{\"prompt\":\"x\"}");
  const auto reply = other.read(5s);
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(code(reply), "server_stopping");
  EXPECT_EQ(testing::stream_events(running.read().body).back(), "[DONE]");
  stopper.join();
}

TEST_F(Leaving, APortInUseIsNamed) {
  start();
  ServerOptions second;
  second.port = port;
  const auto other = Server::start(*engine, second);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, ErrorCode::kIo);
  EXPECT_NE(other.error().message.find("port " + std::to_string(port)), std::string::npos);
  EXPECT_NE(other.error().message.find("in use"), std::string::npos);
}

TEST_F(Leaving, AHostThatIsNotHereIsNamed) {
  start();
  ServerOptions options;
  options.port = 0;
  options.host = "192.0.2.1";
  const auto other = Server::start(*engine, options);
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("192.0.2.1"), std::string::npos);
}

TEST_F(Leaving, LocalhostIsServedOnAllItsAddresses) {
  options.host = "localhost";
  start();
  EXPECT_EQ(get("/health").status, 200);  // 127.0.0.1
}

TEST_F(Leaving, ManyShortRequestsLoseNone) {
  start();
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&, i] {
      HttpClient client(port);
      for (int j = 0; j < 16; ++j) {
        client.send(
            request_text("POST", "/v1/completions",
                         R"({"prompt":"say=n)" + std::to_string(i * 100 + j) + R"(","stream":)" + (j % 2 ? "true" : "false") + "}"));
        const auto reply = client.read();
        good += reply.status == 200 && reply.complete && (j % 2 || reply.body.find("\"n" + std::to_string(i * 100 + j) + '"') != std::string::npos);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, 256);
}

}  // namespace
}  // namespace lockstep::server
