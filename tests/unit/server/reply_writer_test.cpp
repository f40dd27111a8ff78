#include "server/openai/reply_writer.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

#include "server/http_client.h"

namespace lockstep::server::openai {
namespace {

namespace json = boost::json;

ReplyShape shape(bool chat, bool stream) {
  ReplyShape out;
  out.chat = chat;
  out.stream = stream;
  out.reply_id = "id-1";
  out.model = "m";
  out.fingerprint = "fp";
  out.created = 5;
  out.think_start = 1;
  out.think_end = 2;
  return out;
}

engine::Event text(std::vector<std::int32_t> ids, std::string content, std::string reasoning = "", int choice = 0) {
  engine::Event event;
  event.choice = choice;
  event.token_ids = std::move(ids);
  event.content = std::move(content);
  event.reasoning = std::move(reasoning);
  return event;
}
engine::Event finish(std::vector<std::int32_t> ids, engine::FinishReason reason, int choice = 0, std::int64_t tokens = 3) {
  engine::Event event = text(std::move(ids), "", "", choice);
  event.finish.emplace();
  event.finish->reason = reason;
  event.finish->usage = {10, 4, tokens};
  event.finish->token_sha256 = "hash" + std::to_string(choice);
  event.finish->seed = ~0ull;
  return event;
}

std::vector<json::object> events(const std::string& out) {
  std::vector<json::object> objects;
  for (const auto& data : testing::stream_events(out)) {
    if (data != "[DONE]") objects.push_back(json::parse(data).as_object());
  }
  return objects;
}
json::object choice(const json::object& chunk) { return chunk.at("choices").at(0).as_object(); }

TEST(ReplyWriter, ChatBody) {
  ReplyShape s = shape(true, false);
  s.return_token_ids = true;
  s.prompt_ids = {7, 8};
  s.split_reasoning = s.starts_in_reasoning = true;
  ReplyWriter writer(s);
  std::string out;
  writer.push(text({5, 6}, "", "thought"), out);
  writer.push(text({2, 9}, "say \"hi\"\n"), out);
  EXPECT_TRUE(out.empty());
  writer.push(finish({3}, engine::FinishReason::kStop), out);
  const json::object body = json::parse(out).as_object();
  EXPECT_EQ(body.at("object"), "chat.completion");
  EXPECT_EQ(body.at("model"), "m");
  const json::object c = choice(body);
  EXPECT_EQ(c.at("message").at("content"), "say \"hi\"\n");
  EXPECT_EQ(c.at("message").at("reasoning_content"), "thought");
  EXPECT_EQ(c.at("finish_reason"), "stop");
  EXPECT_EQ(c.at("token_ids"), json::value({5, 6, 2, 9, 3}));
  EXPECT_EQ(body.at("prompt_token_ids"), json::value({7, 8}));
  EXPECT_EQ(body.at("usage"), json::parse(R"({"prompt_tokens":10,"completion_tokens":3,"total_tokens":13,
      "prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}})"));
  EXPECT_EQ(body.at("lockstep").at("token_sha256"), "hash0");
  EXPECT_EQ(body.at("lockstep").at("seed"), "18446744073709551615");
}

TEST(ReplyWriter, CompletionBody) {
  ReplyWriter writer(shape(false, false));
  std::string out;
  writer.push(text({5}, "a"), out);
  writer.push(finish({}, engine::FinishReason::kLength), out);
  const json::object body = json::parse(out).as_object();
  EXPECT_EQ(body.at("object"), "text_completion");
  EXPECT_EQ(choice(body).at("text"), "a");
  EXPECT_EQ(choice(body).at("finish_reason"), "length");
  EXPECT_FALSE(body.contains("prompt_token_ids"));
  EXPECT_FALSE(choice(body).contains("token_ids"));
}

TEST(ReplyWriter, ChatStream) {
  ReplyShape s = shape(true, true);
  s.return_token_ids = s.include_usage = true;
  s.prompt_ids = {7};
  ReplyWriter writer(s);
  std::string out;
  writer.push(text({5}, ""), out);  // half a character: no text, its id travels with the next chunk
  writer.push(text({6}, "x"), out);
  writer.push(finish({3}, engine::FinishReason::kStop), out);
  const auto chunks = events(out);
  ASSERT_EQ(chunks.size(), 4u);
  EXPECT_EQ(choice(chunks[0]).at("delta"), json::parse(R"({"role":"assistant","content":""})"));
  EXPECT_EQ(choice(chunks[0]).at("token_ids"), json::array());
  EXPECT_EQ(chunks[0].at("prompt_token_ids"), json::value({7}));
  EXPECT_EQ(choice(chunks[1]).at("delta"), json::parse(R"({"content":"x"})"));
  EXPECT_EQ(choice(chunks[1]).at("token_ids"), json::value({5, 6}));
  EXPECT_TRUE(choice(chunks[1]).at("finish_reason").is_null());
  EXPECT_EQ(choice(chunks[2]).at("finish_reason"), "stop");
  EXPECT_EQ(choice(chunks[2]).at("token_ids"), json::value({3}));
  EXPECT_EQ(chunks[2].at("lockstep").at("token_sha256"), "hash0");
  EXPECT_TRUE(chunks[2].at("usage").is_null());
  EXPECT_TRUE(chunks[3].at("choices").as_array().empty());
  EXPECT_EQ(chunks[3].at("usage").at("completion_tokens"), 3);
  EXPECT_TRUE(out.ends_with("data: [DONE]\n\n"));
}

TEST(ReplyWriter, StreamWithoutUsageHasNone) {
  ReplyWriter writer(shape(true, true));
  std::string out;
  writer.push(finish({3}, engine::FinishReason::kStop), out);
  EXPECT_EQ(out.find("usage"), std::string::npos);
}

TEST(ReplyWriter, StreamedReasoningAndContentShareAChunk) {
  ReplyWriter writer(shape(true, true));
  std::string out;
  writer.push(text({5}, "c", "r"), out);
  EXPECT_EQ(choice(events(out)[1]).at("delta"), json::parse(R"({"reasoning_content":"r","content":"c"})"));
}

TEST(ReplyWriter, CompletionStream) {
  ReplyWriter writer(shape(false, true));
  std::string out;
  writer.push(text({5}, "a"), out);
  writer.push(finish({}, engine::FinishReason::kLength), out);
  const auto chunks = events(out);
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(choice(chunks[0]).at("text"), "a");
  EXPECT_EQ(choice(chunks[1]).at("finish_reason"), "length");
}

TEST(ReplyWriter, SeveralChoices) {
  ReplyShape s = shape(true, false);
  s.choices = 2;
  ReplyWriter writer(s);
  std::string out;
  writer.push(text({5}, "b", "", 1), out);
  writer.push(text({5}, "a", "", 0), out);
  writer.push(finish({}, engine::FinishReason::kStop, 1, 4), out);
  EXPECT_TRUE(out.empty());
  writer.push(finish({}, engine::FinishReason::kLength, 0, 3), out);
  const json::object body = json::parse(out).as_object();
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content"), "a");
  EXPECT_EQ(body.at("choices").at(1).at("message").at("content"), "b");
  EXPECT_EQ(body.at("choices").at(1).at("lockstep").at("token_sha256"), "hash1");
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 7);
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), 10);

  s.stream = true;
  ReplyWriter streamed(s);
  out.clear();
  streamed.push(text({5}, "b", "", 1), out);
  streamed.push(finish({}, engine::FinishReason::kStop, 1), out);
  EXPECT_EQ(out.find("[DONE]"), std::string::npos);
  streamed.push(finish({}, engine::FinishReason::kStop, 0), out);
  EXPECT_TRUE(out.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(choice(events(out)[0]).at("index"), 1);
}

TEST(ReplyWriter, ReasoningTokensAreCountedWithoutTheTags) {
  for (const bool starts : {true, false}) {
    ReplyShape s = shape(true, false);
    s.split_reasoning = true;
    s.starts_in_reasoning = starts;
    ReplyWriter writer(s);
    std::string out;
    if (!starts) writer.push(text({1}, ""), out);
    writer.push(text({5, 6, 2, 7, 1, 8}, ""), out);
    writer.push(finish({}, engine::FinishReason::kStop), out);
    EXPECT_EQ(json::parse(out).at("usage").at("completion_tokens_details").at("reasoning_tokens"), 2) << starts;
  }
}

}  // namespace
}  // namespace lockstep::server::openai
