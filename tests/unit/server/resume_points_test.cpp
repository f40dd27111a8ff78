#include "server/openai/resume_points.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "server/openai/prompt.h"
#include "unit/server/serving.h"

namespace lockstep::server::openai {
namespace {

namespace json = boost::json;

std::int64_t common(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
  std::size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return static_cast<std::int64_t>(n);
}

class ResumePoints : public Serving {
 protected:
  ResumePoints() { start(); }
  ChatPrompt prompt(const std::string& messages, const std::string& more = "") {
    body = json::parse(R"({"messages":)" + messages + more + "}");
    const auto fields = read_request_fields(body.get_object(), kChat);
    BoundedMemory memory(1 << 20);
    auto made = chat_prompt(engine->info(), *fields, 64, true, memory);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return *made;
  }
  json::value body;
};

const std::string kUser = R"({"role":"user","content":"What is the capital of Norway?"})";
const std::string kReply = R"({"role":"assistant","content":"The capital of Norway is Oslo."})";

TEST_F(ResumePoints, LieWhereTheNextTurnAndAnEditPart) {
  for (const char* thinking : {"", R"(,"chat_template_kwargs":{"enable_thinking":true})"}) {
    const ChatPrompt now = prompt("[" + kUser + "," + kReply + "," + kUser + "]", thinking);
    const ChatPrompt next = prompt("[" + kUser + "," + kReply + "," + kUser + "," + kReply + R"(,{"role":"user","content":"And?"}])", thinking);
    const ChatPrompt edited = prompt("[" + kUser + "," + kReply + R"(,{"role":"user","content":"Thanks!"}])", thinking);
    ASSERT_EQ(now.resume_points.size(), 2u);
    EXPECT_EQ(now.resume_points[1], common(now.ids, next.ids));
    // Up to the last message; an edit may share some of its first tokens too.
    EXPECT_LE(now.resume_points[0], common(now.ids, edited.ids));
    EXPECT_GE(now.resume_points[0] + 3, common(now.ids, edited.ids));
    EXPECT_LT(now.resume_points[1], static_cast<std::int64_t>(now.ids.size()));
  }
}

TEST_F(ResumePoints, ASharedSystemPromptIsOne) {
  const std::string system = R"({"role":"system","content":"You answer briefly and in one sentence."})";
  const ChatPrompt now = prompt("[" + system + "," + kUser + "," + kReply + "," + kUser + "]");
  const ChatPrompt another = prompt("[" + system + R"(,{"role":"user","content":"Count from 3 to 14."}])");
  ASSERT_EQ(now.resume_points.size(), 3u);
  EXPECT_LE(now.resume_points[0], common(now.ids, another.ids));
  EXPECT_GE(now.resume_points[0] + 3, common(now.ids, another.ids));
}

TEST_F(ResumePoints, TextThatSpellsControlTokensDoesNotMoveThem) {
  const std::string user = R"({"role":"user","content":"a<|im_start|>b<|im_end|>"})";
  const ChatPrompt now = prompt("[" + user + "]");
  const ChatPrompt next = prompt("[" + user + "," + kReply + "," + kUser + "]");
  ASSERT_FALSE(now.resume_points.empty());
  EXPECT_EQ(now.resume_points.back(), common(now.ids, next.ids));
}

TEST_F(ResumePoints, SharedTokensEqualThoseOfWholeEncodings) {
  const auto& tokenizer = *engine->info().tokenizer;
  const std::string base = "<|im_start|>user\nThe quick brown fox jumps<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
  const auto ids = *tokenizer.encode_chat(base);
  for (std::size_t cut = 0; cut <= base.size(); ++cut) {
    const std::string other = base.substr(0, cut) + " zebra and some more words that follow it, enough of them to be longer than what is looked at";
    const auto whole = *tokenizer.encode_chat(other);
    EXPECT_EQ(shared_tokens(tokenizer, base, ids, other), common(ids, whole)) << cut;
  }
  EXPECT_EQ(shared_tokens(tokenizer, base, ids, base), static_cast<std::int64_t>(ids.size()));
  EXPECT_EQ(shared_tokens(tokenizer, base, ids, ""), 0);
}

TEST_F(ResumePoints, VariablesAreLeftAsTheyWere) {
  json::object variables{{"messages", json::array{json::parse(kUser), json::parse(kReply)}}, {"add_generation_prompt", true}};
  const std::string before = json::serialize(variables);
  resume_points(engine->info(), variables, "x", {1, 2});
  EXPECT_EQ(json::serialize(variables), before);
}

}  // namespace
}  // namespace lockstep::server::openai
