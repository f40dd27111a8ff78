// Tokenizer: ids of the oracles, bytes of every token, both families of decoders.
#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "text/text_stream.h"
#include "unit/text/small_tokenizer.h"

namespace lockstep::testing {
namespace {

using text::Tokenizer;
using Ids = std::vector<std::int32_t>;

std::shared_ptr<const Tokenizer> bundled() {
  auto loaded = Tokenizer::load(checkpoint("tiny-qwen3_5-mlx-4bit"));
  return loaded.ok() ? std::move(loaded).value() : nullptr;
}

TEST(TokenizerOracle, IdsOfEveryPrompt) {
  LOCKSTEP_NEED_FIXTURE(oracle("prompts.json"));
  LOCKSTEP_NEED_FIXTURE(checkpoint("tiny-qwen3_5-mlx-4bit"));
  const auto tokenizer = bundled();
  ASSERT_TRUE(tokenizer);
  const auto prompts = read_json(oracle("prompts.json"));
  ASSERT_EQ(prompts.as_array().size(), 24u);
  for (const auto& prompt : prompts.as_array()) {
    const std::string text(prompt.at("text").as_string());
    const Ids expected = ids_of(prompt.at("ids"));
    EXPECT_EQ(tokenizer->encode(text, false).value(), expected) << text;
    EXPECT_EQ(tokenizer->encode_chat(text).value(), expected) << text;
    // A mark anywhere takes the other way through the encoder.
    EXPECT_EQ(tokenizer->encode_chat(text + std::string(text::kPlainMark)).value(), expected) << text;
    EXPECT_EQ(tokenizer->decode(expected, false), text);
    EXPECT_EQ(concatenated(*tokenizer, expected), text);
  }
}

TEST(TokenizerOracle, SpecialTokensAndNames) {
  LOCKSTEP_NEED_FIXTURE(checkpoint("tiny-qwen3_5-mlx-4bit"));
  const auto tokenizer = bundled();
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->largest_id(), 8008);
  EXPECT_EQ(tokenizer->eos_token(), "<|im_end|>");
  EXPECT_EQ(tokenizer->eos_id(), 8002);
  EXPECT_EQ(tokenizer->bos_token(), std::nullopt);
  EXPECT_EQ(tokenizer->id_of("<think>"), 8003);
  EXPECT_EQ(tokenizer->id_of("no such token"), std::nullopt);
  EXPECT_TRUE(tokenizer->is_special(8000));
  EXPECT_FALSE(tokenizer->is_special(8003));
  EXPECT_FALSE(tokenizer->strips_leading_space());
  EXPECT_EQ(tokenizer->token_bytes(8003), "<think>");
  EXPECT_EQ(tokenizer->token_bytes(-1), "");
  EXPECT_EQ(tokenizer->token_bytes(8009), "");
  EXPECT_EQ(tokenizer->decode(Ids{8001, 309, 8002, 9000, -5}, true), tokenizer->decode(Ids{309}, false));
}

TEST(TokenizerOracle, RandomIdsStreamAsTheyDecode) {
  LOCKSTEP_NEED_FIXTURE(checkpoint("tiny-qwen3_5-mlx-4bit"));
  const auto tokenizer = bundled();
  ASSERT_TRUE(tokenizer);
  const auto seed = std::random_device{}();
  fmt::print("seed {}\n", seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; round++) {
    Ids ids(random() % 12);
    for (auto& id : ids) id = std::int32_t(random() % 8009);
    text::TextStream stream;
    std::string streamed;
    for (const auto id : ids) streamed += stream.push(tokenizer->token_bytes(id));
    streamed += stream.finish();
    EXPECT_EQ(streamed, tokenizer->decode(ids, false));
  }
}

TEST(TokenizerOracle, PrintsItsTimes) {
  LOCKSTEP_NEED_FIXTURE(oracle("prompts.json"));
  LOCKSTEP_NEED_FIXTURE(checkpoint("tiny-qwen3_5-mlx-4bit"));
  double start = thread_ms();
  const auto tokenizer = bundled();
  ASSERT_TRUE(tokenizer);
  fmt::print("load {:.1f} ms\n", thread_ms() - start);
  std::string text;
  const auto prompts = read_json(oracle("prompts.json"));
  while (text.size() < 130000) {
    for (const auto& prompt : prompts.as_array()) text += prompt.at("text").as_string().c_str();
  }
  start = thread_ms();
  const auto ids = tokenizer->encode(text, false).value();
  fmt::print("encode {} bytes to {} ids: {:.1f} ms\n", text.size(), ids.size(), thread_ms() - start);
  start = thread_ms();
  const std::string marked = text::mark_plain(*tokenizer, text, false);
  fmt::print("mark_plain: {:.1f} ms\n", thread_ms() - start);
  start = thread_ms();
  const auto plain = tokenizer->encode_chat(marked).value();
  fmt::print("encode_chat to {} ids: {:.1f} ms\n", plain.size(), thread_ms() - start);
  EXPECT_EQ(concatenated(*tokenizer, plain), text);
}

TEST(Tokenizer, ByteLevel) {
  const auto tokenizer =
      load(byte_level_tokenizer(), R"({"eos_token": {"content": "<|end|>"}, "bos_token": "<|start|>", "add_bos_token": true})");
  EXPECT_EQ(tokenizer->largest_id(), 262);
  EXPECT_EQ(tokenizer->encode("the<|end|>th", false).value(), (Ids{257, 258, 256}));
  EXPECT_EQ(tokenizer->eos_id(), 258);
  EXPECT_EQ(tokenizer->bos_token(), "<|start|>");
  for (int b = 0; b < 256; b++) EXPECT_EQ(tokenizer->token_bytes(b), std::string(1, char(b)));
  const std::string family = "\U0001F468\u200D\U0001F469\u200D\U0001F467 K\u00f6ln";
  EXPECT_EQ(concatenated(*tokenizer, tokenizer->encode(family, false).value()), family);
  EXPECT_EQ(tokenizer->decode(Ids{0xF0, 0x9F, 0x98}, false), "\uFFFD");
  EXPECT_EQ(tokenizer->decode(Ids{0xF0, 0x9F, 'a', 0xFF}, false), "\uFFFDa\uFFFD");
  EXPECT_EQ(tokenizer->encode("\xFF", false).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(tokenizer->encode_chat("a\xC3").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(tokenizer->encode("", false).value(), Ids{});
}

TEST(Tokenizer, PostProcessorOnlyWhenAsked) {
  auto json = byte_level_tokenizer();
  json["post_processor"] = boost::json::parse(
      R"({"type": "TemplateProcessing",
          "single": [{"SpecialToken": {"id": "<|start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
          "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
          "special_tokens": {"<|start|>": {"id": "<|start|>", "ids": [259], "tokens": ["<|start|>"]}}})");
  const auto tokenizer = load(json);
  EXPECT_EQ(tokenizer->encode("the", true).value(), (Ids{259, 257}));
  EXPECT_EQ(tokenizer->encode("the", false).value(), Ids{257});
  EXPECT_EQ(tokenizer->encode_chat("the").value(), Ids{257});
}

TEST(Tokenizer, TruncationAndPaddingOfTheFileDoNotApply) {
  auto json = byte_level_tokenizer();
  json["truncation"] = boost::json::parse(R"({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0})");
  json["padding"] = boost::json::parse(
      R"({"strategy": {"Fixed": 16}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "!"})");
  EXPECT_EQ(load(json)->encode("xyz", true).value(), (Ids{'x', 'y', 'z'}));
}

TEST(Tokenizer, SentencePieceStyle) {
  const auto tokenizer = load(pieces_tokenizer());
  EXPECT_TRUE(tokenizer->strips_leading_space());
  const auto hello = *tokenizer->id_of("\u2581hello");
  const auto user = *tokenizer->id_of("<|user|>");
  EXPECT_EQ(tokenizer->encode("hello hello", false).value(), (Ids{hello, hello}));
  // Only the text's start gets the space, also on the way of marked text.
  const std::string turn = "hello<|user|>hello";
  const auto ids = tokenizer->encode(turn, false).value();
  EXPECT_EQ(ids, (Ids{hello, user, *tokenizer->id_of("hello")}));
  EXPECT_EQ(tokenizer->encode_chat(turn + std::string(text::kPlainMark)).value(), ids);
  EXPECT_EQ(tokenizer->decode(Ids{hello, hello}, false), "hello hello");
  EXPECT_EQ(tokenizer->token_bytes(hello), " hello");
  EXPECT_EQ(tokenizer->token_bytes(3 + 0xE2), "\xE2");
  const auto snowman = tokenizer->encode("a\u2603", false).value();
  EXPECT_EQ(snowman.size(), 5u);  // space, a, three bytes
  EXPECT_EQ(tokenizer->decode(snowman, false), "a\u2603");
  EXPECT_EQ(tokenizer->decode(Ids{snowman[2], snowman[3]}, false), "\uFFFD");
}

TEST(Tokenizer, LongRunsAreNotLost) {
  const auto tokenizer = load(byte_level_tokenizer());
  for (const char* unit : {" ", "\n", "a", "7", "!", " \n"}) {
    std::string text;
    while (text.size() < 300000) text += unit;
    EXPECT_EQ(concatenated(*tokenizer, tokenizer->encode(text + "x", false).value()), text + "x");
  }
}

}  // namespace
}  // namespace lockstep::testing
