#include "server/openai/request_fields.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <limits>
#include <set>

#include "server/server.h"

namespace lockstep::server::openai {
namespace {

namespace json = boost::json;

struct Parsed {
  json::value body;  // the fields point into it
  Result<RequestFields> fields;
};
std::unique_ptr<Parsed> read(const std::string& members, Route route = kCompletions) {
  const std::string required = route == kChat ? R"("messages":[{"role":"user","content":"x"}])" : R"("prompt":"x")";
  auto out = std::make_unique<Parsed>(Parsed{json::parse("{" + required + (members.empty() ? "" : ",") + members + "}"), Error{}});
  out->fields = read_request_fields(out->body.get_object(), route);
  return out;
}
RequestFields take(const std::string& members, Route route = kCompletions) {
  const auto parsed = read(members, route);
  EXPECT_TRUE(parsed->fields.ok()) << members << ": " << (parsed->fields.ok() ? "" : parsed->fields.error().message);
  return parsed->fields.ok() ? *parsed->fields : RequestFields{};
}
void refuses(const std::string& members, const std::string& subject, Route route = kCompletions) {
  const auto parsed = read(members, route);
  ASSERT_FALSE(parsed->fields.ok()) << members;
  EXPECT_EQ(parsed->fields.error().subject, subject) << members;
  EXPECT_NE(parsed->fields.error().message.find(subject), std::string::npos) << parsed->fields.error().message;
}

TEST(RequestFields, SamplingNumbersHaveRanges) {
  const RequestFields fields = take(R"("temperature":0.7,"top_p":0.9,"top_k":20,"min_p":0.05)");
  EXPECT_EQ(fields.temperature, 0.7);
  EXPECT_EQ(fields.top_p, 0.9);
  EXPECT_EQ(fields.top_k, 20);
  EXPECT_EQ(fields.min_p, 0.05);
  for (const char* bad : {"-0.1", "2.01", "1e6", "\"1\"", "true", "[]", "{}"}) refuses(std::string("\"temperature\":") + bad, "temperature");
  for (const char* bad : {"-0.1", "1.01", "\"x\"", "false"}) refuses(std::string("\"top_p\":") + bad, "top_p");
  for (const char* bad : {"-2", "1.5", "\"x\"", "1e30"}) refuses(std::string("\"top_k\":") + bad, "top_k");
  for (const char* bad : {"-0.1", "1.01", "null_", "\"\""}) {
    if (std::string(bad) != "null_") refuses(std::string("\"min_p\":") + bad, "min_p");
  }
  EXPECT_EQ(take(R"("top_k":-1)").top_k, 0);
  EXPECT_GT(take(R"("top_p":0)").top_p, 0);
  EXPECT_EQ(take(R"("top_k":99999999999)").top_k, std::numeric_limits<int>::max());
}

TEST(RequestFields, NullIsAbsence) {
  const RequestFields fields = take(R"("temperature":null,"stop":null,"seed":null,"n":null,"logprobs":null,"stream":null,"max_tokens":null,"tools":null)");
  EXPECT_FALSE(fields.temperature || fields.seed || fields.max_tokens);
}

TEST(RequestFields, SeedsAre64Bits) {
  EXPECT_EQ(take(R"("seed":5)").seed, 5u);
  EXPECT_EQ(take(R"("seed":-1)").seed, ~0ull);
  EXPECT_EQ(take(R"("seed":18446744073709551615)").seed, ~0ull);
  EXPECT_EQ(take(R"("seed":"18446744073709551615")").seed, ~0ull);
  EXPECT_EQ(take(R"("seed":"-9223372036854775808")").seed, 1ull << 63);
  EXPECT_EQ(take(R"("seed":7.0)").seed, 7u);
  for (const char* bad : {"1.5", "18446744073709551616", "\"18446744073709551616\"", "\"-9223372036854775809\"", "\"\"", "\"1 \"",
                          "\"0x1\"", "true", "\"+1\""}) {
    refuses(std::string("\"seed\":") + bad, "seed");
  }
}

TEST(RequestFields, TheSmallerTokenLimitHolds) {
  EXPECT_EQ(take(R"("max_tokens":7)").max_tokens, 7);
  EXPECT_EQ(take(R"("max_completion_tokens":7,"max_tokens":9)").max_tokens, 7);
  EXPECT_EQ(take(R"("max_completion_tokens":9,"max_tokens":7)").max_tokens, 7);
  EXPECT_EQ(take(R"("max_tokens":16.0)").max_tokens, 16);
  EXPECT_GT(take(R"("max_tokens":1e300)").max_tokens, 1ll << 60);
  for (const char* bad : {"0", "-1", "1.5", "\"7\"", "true"}) refuses(std::string("\"max_tokens\":") + bad, "max_tokens");
}

TEST(RequestFields, StopsAreBounded) {
  EXPECT_EQ(take(R"("stop":"a")").stop, std::vector<std::string>{"a"});
  EXPECT_EQ(take(R"("stop":["a","\n"])").stop, (std::vector<std::string>{"a", "\n"}));
  EXPECT_TRUE(take(R"("stop":[])").stop.empty());
  refuses(R"("stop":"")", "stop");
  refuses(R"("stop":["a",""])", "stop[1]");
  refuses(R"("stop":["a",3])", "stop[1]");
  refuses(R"("stop":3)", "stop");
  std::string many = "\"stop\":[\"a\"";
  for (int i = 0; i < 16; ++i) many += ",\"a\"";
  refuses(many + "]", "stop");
  refuses("\"stop\":\"" + std::string(4097, 'x') + "\"", "stop");
}

TEST(RequestFields, StreamOptionsBelongToStreams) {
  EXPECT_TRUE(take(R"("stream":true,"stream_options":{"include_usage":true})").include_usage);
  EXPECT_TRUE(take(R"("stream_options":{"include_usage":true},"stream":true)").include_usage);
  refuses(R"("stream_options":{"include_usage":true})", "stream_options");
  refuses(R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage");
  refuses(R"("stream":"yes")", "stream");
}

TEST(RequestFields, NeutralValuesPassAndOthersAreRefusedByName) {
  take(R"("presence_penalty":0,"frequency_penalty":0.0,"repetition_penalty":1,"logit_bias":{},"best_of":1,"echo":false,"suffix":"","top_logprobs":0,
          "response_format":{"type":"text"},"min_tokens":0,"stop_token_ids":[],"use_beam_search":false)");
  take(R"("tools":[],"tool_choice":"none","logprobs":false,"modalities":["text"],"parallel_tool_calls":true)", kChat);
  for (const auto& [field, value] : std::vector<std::pair<std::string, std::string>>{
           {"presence_penalty", "0.5"}, {"frequency_penalty", "-2.0"}, {"repetition_penalty", "0"}, {"repetition_penalty", "1e9"}, {"logit_bias", R"({"5":1})"},
           {"best_of", "2"}, {"echo", "true"}, {"suffix", "\"x\""}, {"logprobs", "1"}, {"logprobs", "0"}, {"top_logprobs", "3"},
           {"response_format", R"({"type":"json_object"})"}, {"guided_json", "{}"}, {"min_tokens", "3"}, {"echo", "0"}}) {
    refuses('"' + field + "\":" + value, field);
  }
  for (const auto& [field, value] : std::vector<std::pair<std::string, std::string>>{
           {"tools", R"([{"type":"function"}])"}, {"tools", "3"}, {"tool_choice", "\"required\""}, {"functions", "[{}]"}, {"logprobs", "true"},
           {"audio", "{}"}, {"modalities", R"(["text","audio"])"}, {"thinking_budget", "5"}, {"chat_template", "\"x\""}}) {
    refuses('"' + field + "\":" + value, field, kChat);
  }
}

TEST(RequestFields, ChoicesAndOtherHonouredFields) {
  EXPECT_EQ(take(R"("n":3)").n, 3);
  for (const char* bad : {"0", "17", "-1", "1.5", "\"1\""}) refuses(std::string("\"n\":") + bad, "n");
  EXPECT_EQ(take(R"("priority":"background")").priority, engine::Priority::kBackground);
  EXPECT_EQ(take(R"("priority":1)").priority, engine::Priority::kBackground);
  EXPECT_EQ(take(R"("priority":0)").priority, engine::Priority::kNormal);
  refuses(R"("priority":"high")", "priority");
  EXPECT_EQ(take(R"("cache_salt":"abc")").cache_salt, "abc");
  refuses("\"cache_salt\":\"" + std::string(257, 'x') + "\"", "cache_salt");
  EXPECT_EQ(take(R"("reasoning_effort":"none")", kChat).reasoning_effort, "none");
  refuses(R"("reasoning_effort":"lots")", "reasoning_effort", kChat);
  refuses(R"("chat_template_kwargs":[])", "chat_template_kwargs", kChat);
  refuses(R"("chat_template_kwargs":{"enable_thinking":"false"})", "chat_template_kwargs.enable_thinking", kChat);
  refuses(R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs.messages", kChat);
}

TEST(RequestFields, UnknownOnesAreListedAndBounded) {
  EXPECT_EQ(take(R"("best_friend":1)").unknown, std::vector<std::string>{"best_friend"});
  EXPECT_TRUE(take(R"("user":"u","metadata":{"a":"b"},"store":true,"service_tier":"auto")").unknown.empty());
  std::string many = "\"x0\":0";
  for (int i = 1; i < 100; ++i) many += ",\"x" + std::to_string(i) + "\":0";
  EXPECT_EQ(take(many).unknown.size(), 16u);
  EXPECT_EQ(take(R"("messages":[])").unknown, std::vector<std::string>{"messages"});  // of the other route
}

TEST(RequestFields, RequiredOnesAreRequired) {
  for (const char* body : {"{}", R"({"prompt":null})"}) {
    const json::value value = json::parse(body);
    const auto fields = read_request_fields(value.get_object(), kCompletions);
    ASSERT_FALSE(fields.ok());
    EXPECT_EQ(fields.error().subject, "prompt");
  }
  const json::value value = json::parse(R"({"messages":"hi"})");
  EXPECT_EQ(read_request_fields(value.get_object(), kChat).error().subject, "messages");
}

// Any JSON value in any field is read or refused by that field's name.
TEST(RequestFields, EveryFieldNamesItself) {
  for (const Field& field : request_field_table()) {
    for (const char* value : {"0", "-1", "1e300", "1.5", "true", "false", "\"\"", "\"text\"", "[]", "[[]]", "{}", R"({"a":1})", "[1,\"a\"]"}) {
      const Route route = field.routes & kChat ? kChat : kCompletions;
      const json::value body = json::parse(R"({")" + std::string(field.name) + "\":" + value + "}");
      const auto fields = read_request_fields(body.get_object(), route);
      if (fields.ok() || fields.error().subject == (route == kChat ? "messages" : "prompt")) continue;
      EXPECT_EQ(fields.error().subject.substr(0, field.name.size()), field.name) << value;
    }
  }
}

}  // namespace
}  // namespace lockstep::server::openai
