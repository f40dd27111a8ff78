#include "server/openai/messages.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

namespace lockstep::server::openai {
namespace {

namespace json = boost::json;

// Marks "<|im_end|>" only, with "!" for the mark.
std::string mark(std::string_view text) {
  std::string out(text);
  for (std::size_t at = 0; (at = out.find("<|im_end|>", at)) != std::string::npos; at += 2) out.insert(at + 1, "!");
  return out;
}

Result<std::string> read(const std::string& messages) {
  BoundedMemory memory(1 << 20);
  const json::value value = json::parse(messages);
  MessageOptions options;
  options.split_thinking = true;
  auto read = read_messages(value, options, mark, memory);
  if (!read.ok()) return read.error();
  return json::serialize(*read);
}
std::string take(const std::string& messages) {
  const auto out = read(messages);
  return out.ok() ? *out : out.error().message;
}
void refuses(const std::string& messages, const std::string& subject, const std::string& words = "") {
  const auto out = read(messages);
  ASSERT_FALSE(out.ok()) << messages;
  EXPECT_EQ(out.error().subject, subject) << out.error().message;
  EXPECT_NE(out.error().message.find(words), std::string::npos) << out.error().message;
}

TEST(Messages, ContentIsOneString) {
  EXPECT_EQ(take(R"([{"role":"user","content":"a"}])"), R"([{"role":"user","content":"a"}])");
  EXPECT_EQ(take(R"([{"role":"user","content":null}])"), R"([{"role":"user","content":""}])");
  EXPECT_EQ(take(R"([{"role":"user"}])"), R"([{"role":"user","content":""}])");
  EXPECT_EQ(take(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])"), R"([{"role":"user","content":"ab"}])");
  EXPECT_EQ(take(R"([{"role":"user","content":[]}])"), R"([{"role":"user","content":""}])");
  EXPECT_EQ(take(R"([{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]}])"), R"([{"role":"assistant","content":"no"}])");
}

TEST(Messages, OtherPartsAreRefusedByTheirType) {
  refuses(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:"}}]}])", "messages[0].content[1].type",
          "image_url");
  refuses(R"([{"role":"user","content":[{"type":"input_audio"}]}])", "messages[0].content[0].type", "input_audio");
  refuses(R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text");
  refuses(R"([{"role":"user","content":[3]}])", "messages[0].content[0]");
  refuses(R"([{"role":"user","content":{"a":1}}])", "messages[0].content");
  refuses(R"([{"role":"user","content":3}])", "messages[0].content");
}

TEST(Messages, ShapeIsChecked) {
  refuses("[]", "messages", "must not be empty");
  refuses("{}", "messages");
  refuses("[3]", "messages[0]");
  refuses(R"([{"role":"user","content":"a"},{"content":"a"}])", "messages[1].role");
  refuses(R"([{"role":3,"content":"a"}])", "messages[0].role");
  refuses(R"([{"role":"assistant","content":"a","reasoning_content":3}])", "messages[0].reasoning_content");
}

TEST(Messages, DeveloperIsSystemAndOtherRolesPass) {
  EXPECT_EQ(take(R"([{"role":"developer","content":"a"}])"), R"([{"role":"system","content":"a"}])");
  EXPECT_EQ(take(R"([{"role":"narrator","content":"a"}])"), R"([{"role":"narrator","content":"a"}])");
}

TEST(Messages, ToolCallArgumentsAreParsed) {
  const std::string head = R"([{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":)";
  const std::string parsed = R"([{"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":)";
  EXPECT_EQ(take(head + R"("{\"a\": [1, \"x\"]}"}}]}])"), parsed + R"({"a":[1,"x"]}}}]}])");
  EXPECT_EQ(take(head + R"({"a":1}}}]}])"), parsed + R"({"a":1}}}]}])");
  EXPECT_EQ(take(head + R"(""}}]}])"), parsed + "{}}}]}]");
  refuses(head + R"("{\"a\": "}}]}])", "messages[0].tool_calls[0].function.arguments", "is not valid JSON");
  refuses(head + R"("[1]"}}]}])", "messages[0].tool_calls[0].function.arguments", "JSON object");
  refuses(head + R"(3}}]}])", "messages[0].tool_calls[0].function.arguments");
  refuses(R"([{"role":"assistant","tool_calls":[{"id":"c"}]}])", "messages[0].tool_calls[0].function");
  refuses(R"([{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]}])", "messages[0].tool_calls[0].function.name");
  refuses(R"([{"role":"assistant","tool_calls":{}}])", "messages[0].tool_calls");
  EXPECT_EQ(take(R"([{"role":"assistant","content":"a","tool_calls":null}])"), R"([{"role":"assistant","content":"a"}])");
}

TEST(Messages, LegacyFunctionCallIsAToolCall) {
  EXPECT_EQ(take(R"([{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}])"),
            R"([{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":{}}}]}])");
}

TEST(Messages, ReasoningStaysOrIsTakenOutOfTheText) {
  EXPECT_EQ(take(R"([{"role":"assistant","content":"a","reasoning_content":"r"}])"), R"([{"role":"assistant","content":"a","reasoning_content":"r"}])");
  EXPECT_EQ(take(R"([{"role":"assistant","content":"a","reasoning":"r"}])"), R"([{"role":"assistant","content":"a","reasoning_content":"r"}])");
  EXPECT_EQ(take(R"([{"role":"assistant","content":"<think>\nr\n</think>\n\na"}])"), R"([{"role":"assistant","content":"a","reasoning_content":"r"}])");
  EXPECT_EQ(take(R"([{"role":"assistant","content":"r</think>a"}])"), R"([{"role":"assistant","content":"a","reasoning_content":"r"}])");
  EXPECT_EQ(take(R"([{"role":"user","content":"<think>r</think>a"}])"), R"([{"role":"user","content":"<think>r</think>a"}])");
}

TEST(Messages, EveryStringOfAMessageIsMarkedPlain) {
  EXPECT_EQ(take(R"([{"role":"user<|im_end|>","name":"<|im_end|>","content":"a<|im_end|>b"}])"),
            R"([{"role":"user<!|im_end|>","name":"<!|im_end|>","content":"a<!|im_end|>b"}])");
  EXPECT_EQ(take(R"([{"role":"assistant","content":"","tool_calls":[{"function":{"name":"<|im_end|>","arguments":"{\"<|im_end|>\":[\"<|im_end|>\"]}"}}]}])"),
            R"([{"role":"assistant","content":"","tool_calls":[{"function":{"name":"<!|im_end|>","arguments":{"<!|im_end|>":["<!|im_end|>"]}}}]}])");
  EXPECT_EQ(take(R"([{"role":"user","content":[{"type":"text","text":"<|im_"},{"type":"text","text":"end|>"}]}])"),
            R"([{"role":"user","content":"<!|im_end|>"}])");
}

}  // namespace
}  // namespace lockstep::server::openai
