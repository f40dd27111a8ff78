// Broken tokenizer files are refused in words, with memory bounded by the file.
#include <functional>

#include "unit/text/small_tokenizer.h"

namespace lockstep::testing {
namespace {

using boost::json::object;

void expect_refused(std::string_view json, ErrorCode code, std::string_view words) {
  const auto loaded = try_load(json);
  ASSERT_FALSE(loaded.ok()) << words;
  EXPECT_EQ(loaded.error().code, code) << loaded.error().message;
  EXPECT_NE(loaded.error().message.find("tokenizer.json"), std::string::npos) << loaded.error().message;
  EXPECT_NE(loaded.error().message.find(words), std::string::npos) << loaded.error().message;
}

void expect_refused(const std::function<void(object&)>& change, ErrorCode code, std::string_view words) {
  object json = byte_level_tokenizer();
  change(json);
  expect_refused(boost::json::serialize(json), code, words);
}

constexpr auto kCorrupt = ErrorCode::kCorruptFile;
constexpr auto kUnsupported = ErrorCode::kUnsupported;

TEST(HostileTokenizer, NotThere) {
  TempFolder folder;
  EXPECT_EQ(text::Tokenizer::load(folder.path()).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(text::Tokenizer::load(folder.path() / "no").error().code, ErrorCode::kNotFound);
}

TEST(HostileTokenizer, NotJson) {
  expect_refused("", kCorrupt, "EOF");
  expect_refused("\xFF\xFE", kCorrupt, "expected value");
  expect_refused("[]", kCorrupt, "invalid");
  expect_refused("{}", kCorrupt, "model");
  const std::string whole = boost::json::serialize(byte_level_tokenizer());
  for (std::size_t cut = 1; cut < whole.size(); cut += 97) EXPECT_FALSE(try_load(whole.substr(0, cut)).ok()) << cut;
  EXPECT_TRUE(try_load(whole).ok());
}

TEST(HostileTokenizer, DeepNesting) {
  const std::string deep(200000, '[');
  expect_refused(deep, kCorrupt, "");
  expect_refused("{\"model\":" + deep, kCorrupt, "");
  expect_refused("{\"x\":" + deep + std::string(200000, ']') + "}", kCorrupt, "");
  expect_refused("{\"model\":{\"type\":\"BPE\",\"vocab\":" + deep + std::string(200000, ']') + "}}", kCorrupt, "");
}

TEST(HostileTokenizer, WrongTypes) {
  expect_refused([](object& t) { t["added_tokens"] = 3; }, kCorrupt, "expected a sequence");
  expect_refused([](object& t) { t["added_tokens"].as_array()[0].as_object()["id"] = "7"; }, kCorrupt, "expected u64");
  expect_refused([](object& t) { t["added_tokens"].as_array()[0].as_object()["id"] = -1; }, kCorrupt, "-1");
  expect_refused([](object& t) { t["model"] = "BPE"; }, kCorrupt, "model");
  expect_refused([](object& t) { t["model"].as_object()["vocab"] = boost::json::array{}; }, kCorrupt, "an object of token to id");
  expect_refused([](object& t) { t["model"].as_object()["vocab"].as_object()["th"] = 1.5; }, kCorrupt, "1.5");
  expect_refused([](object& t) { t["model"].as_object()["merges"] = "t h"; }, kCorrupt, "a list of merges");
  expect_refused([](object& t) { t["model"].as_object()["merges"] = boost::json::parse(R"(["t h e"])"); }, kCorrupt, "not two tokens");
  expect_refused([](object& t) { t["model"].as_object()["merges"] = boost::json::parse(R"([["t"]])"); }, kCorrupt, "not two tokens");
  expect_refused([](object& t) { t["decoder"] = 5; }, kUnsupported, "decoder");
  expect_refused([](object& t) { t["pre_tokenizer"] = {{"type", "Nothing"}}; }, kCorrupt, "pre_tokenizer");
  expect_refused([](object& t) { t["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}}; }, kCorrupt, "normalizer");
}

TEST(HostileTokenizer, Ids) {
  expect_refused([](object& t) { t["model"].as_object()["vocab"].as_object()["th"] = 4000000000; }, kCorrupt, "4000000000");
  expect_refused([](object& t) { t["model"].as_object()["vocab"].as_object()["th"] = std::uint64_t(1) << 63; }, kCorrupt,
                 "largest supported");
  expect_refused([](object& t) { t["model"].as_object()["vocab"].as_object()["th"] = (1 << 24) - 1; }, kCorrupt, "only 263 tokens");
  expect_refused([](object& t) { t["model"].as_object()["vocab"].as_object()["th"] = 257; }, kCorrupt, "same id 257");
  expect_refused([](object& t) { t["model"].as_object()["vocab"].as_object()["the"] = 258; }, kCorrupt, "same id 258");
  expect_refused([](object& t) { t["added_tokens"].as_array()[0].as_object()["id"] = 4000000000; }, kCorrupt, "4000000000");
  expect_refused([](object& t) { t["added_tokens"].as_array()[0].as_object()["id"] = 400; }, kCorrupt, "its place");
}

TEST(HostileTokenizer, AddedTokens) {
  expect_refused([](object& t) { t["added_tokens"].as_array()[0].as_object()["content"] = ""; }, kCorrupt, "is empty");
  expect_refused([](object& t) { t["added_tokens"].as_array()[0].as_object()["content"] = "<think>"; }, kCorrupt, "listed twice");
  expect_refused([](object& t) { t["added_tokens"].as_array()[0].as_object()["content"] = std::string(2000000, 'a'); }, kUnsupported,
                 "2000000 bytes");
  expect_refused([](object& t) { t["added_tokens"].as_array()[0].as_object().erase("special"); }, kCorrupt, "special");
}

TEST(HostileTokenizer, Model) {
  expect_refused([](object& t) { t["model"].as_object()["type"] = "Unigram"; }, kUnsupported, "Unigram");
  expect_refused([](object& t) { t["model"].as_object()["type"] = "Tensor"; }, kUnsupported, "Tensor");
  expect_refused([](object& t) { t["model"].as_object()["dropout"] = 0.1; }, kUnsupported, "dropout");
  expect_refused([](object& t) { t["model"].as_object()["end_of_word_suffix"] = "</w>"; }, kUnsupported, "end_of_word_suffix");
  expect_refused([](object& t) { t["model"].as_object()["merges"] = boost::json::parse(R"(["t hh"])"); }, kCorrupt, "out of vocabulary");
  expect_refused([](object& t) { t["model"].as_object()["merges"] = boost::json::parse(R"(["the theeeeeeeeeeeeeeeeee"])"); }, kCorrupt,
                 "not in the vocabulary");
  expect_refused([](object& t) { t["model"].as_object()["vocab"].as_object().erase("a"); }, kCorrupt, "would be dropped");
  expect_refused([](object& t) { t["model"].as_object()["unk_token"] = "nope"; }, kCorrupt, "nope");
  expect_refused([](object& t) { t["pre_tokenizer"] = nullptr; }, kUnsupported, "would drop text");
  expect_refused([](object& t) { t["version"] = "2.0"; }, kUnsupported, "2.0");
}

TEST(HostileTokenizer, Regexes) {
  const auto with = [](std::string_view regex) {
    return [regex = std::string(regex)](object& t) {
      t["pre_tokenizer"].as_object()["pretokenizers"].as_array()[0].as_object()["pattern"] = {{"Regex", regex}};
    };
  };
  expect_refused(with("("), kCorrupt, "pre_tokenizer");
  expect_refused(with("(?=a{1000}){1000}"), kUnsupported, "repeats up to 1000000 times");
  expect_refused(with("a{99999999999999999999}"), kUnsupported, "repeats");
  expect_refused(with(std::string(9000, 'a')), kUnsupported, "9000 bytes");
  expect_refused(with(std::string(8000, '(')), kCorrupt, "pre_tokenizer");
}

TEST(HostileTokenizer, DecodersAndPostProcessors) {
  expect_refused([](object& t) { t["decoder"] = nullptr; }, kUnsupported, "decoder: none");
  expect_refused([](object& t) { t["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}; }, kUnsupported, "WordPiece");
  const char* frame =
      R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "X", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": SPECIAL})";
  const auto with = [&](std::string special) {
    std::string text = frame;
    text.replace(text.find("SPECIAL"), 7, special);
    return [text](object& t) { t["post_processor"] = boost::json::parse(text); };
  };
  expect_refused(with("{}"), kCorrupt, "post_processor");
  expect_refused(with(R"({"X": {"id": "X", "ids": [99999], "tokens": ["X"]}})"), kCorrupt, "99999");
}

TEST(HostileTokenizer, Config) {
  const std::string json = boost::json::serialize(byte_level_tokenizer());
  const auto broken = try_load(json, "{\"eos_token\": ");
  ASSERT_FALSE(broken.ok());
  EXPECT_NE(broken.error().message.find("tokenizer_config.json"), std::string::npos) << broken.error().message;
  const auto number = try_load(json, "{\"eos_token\": 7}");
  ASSERT_FALSE(number.ok());
  EXPECT_NE(number.error().message.find("eos_token"), std::string::npos) << number.error().message;
  EXPECT_TRUE(try_load(json, "{\"eos_token\": null, \"add_bos_token\": false}").ok());
}

TEST(HostileTokenizer, TooLarge) {
  TempFolder folder;
  folder.write("tokenizer.json", "{}");
  std::filesystem::resize_file(folder.path() / "tokenizer.json", (std::uintmax_t(256) << 20) + 1);  // sparse
  const auto loaded = text::Tokenizer::load(folder.path());
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, kUnsupported);
}

}  // namespace
}  // namespace lockstep::testing
