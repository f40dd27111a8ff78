// Small tokenizers made in memory, and the oracles' JSON, for the tests of this folder.
#pragma once
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include <cstdint>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/fixtures.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lockstep::testing {

/// Time this thread has computed, in milliseconds: what a printed figure should not owe to other processes.
inline double thread_ms() {
  std::timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) * 1e3 + double(t.tv_nsec) * 1e-6;
}

inline std::string utf8(std::uint32_t c) {
  if (c < 0x80) return {char(c)};
  if (c < 0x800) return {char(0xC0 | c >> 6), char(0x80 | (c & 63))};
  if (c < 0x10000) return {char(0xE0 | c >> 12), char(0x80 | (c >> 6 & 63)), char(0x80 | (c & 63))};
  return {char(0xF0 | c >> 18), char(0x80 | (c >> 12 & 63)), char(0x80 | (c >> 6 & 63)), char(0x80 | (c & 63))};
}

/// The character of GPT-2's table for a byte.
inline std::string byte_level(std::uint8_t byte) {
  const auto printable = [](int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
  if (printable(byte)) return utf8(byte);
  std::uint32_t rank = 0;
  for (int b = 0; b < byte; b++) rank += !printable(b);
  return utf8(256 + rank);
}

inline boost::json::object added_token(std::int64_t id, std::string_view content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

inline const std::vector<std::string>& control_tokens() {
  static const std::vector<std::string> tokens = {"<|end|>", "<|start|>", "<think>", "</think>", "<call>"};
  return tokens;
}

/// tokenizer.json of a byte-level BPE: ids 0..255 are the bytes, 256 "th", 257 "the", then control_tokens() from 258 on (the first two
/// special).
inline boost::json::object byte_level_tokenizer() {
  boost::json::object vocab;
  for (int b = 0; b < 256; b++) vocab[byte_level(std::uint8_t(b))] = b;
  vocab["th"] = 256;
  vocab["the"] = 257;
  boost::json::array added;
  for (std::size_t i = 0; i < control_tokens().size(); i++) added.push_back(added_token(258 + std::int64_t(i), control_tokens()[i], i < 2));
  const boost::json::object level{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
  const boost::json::object split{{"type", "Split"},
                                  {"pattern", {{"Regex", R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"}}},
                                  {"behavior", "Isolated"},
                                  {"invert", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", boost::json::array{split, level}}}},
          {"post_processor", nullptr},
          {"decoder", level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"vocab", vocab},
            {"merges", boost::json::array{"t h", boost::json::array{"th", "e"}}}}}};
}

/// tokenizer.json in SentencePiece's way: 0..2 <unk> <s> </s>, 3..258 bytes, 259 the space, letters, words; <|user|> last.
inline boost::json::object pieces_tokenizer() {
  boost::json::object vocab{{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  const auto add = [&](std::string_view token) { vocab.emplace(token, std::int64_t(vocab.size())); };
  const char* hex = "0123456789ABCDEF";
  for (int b = 0; b < 256; b++) add(std::string("<0x") + hex[b >> 4] + hex[b & 15] + ">");
  add("\u2581");
  for (char c = 'a'; c <= 'z'; c++) add(std::string(1, c));
  for (const char* word : {"he", "ll", "hell", "hello", "\u2581hello"}) add(word);
  const auto last = std::int64_t(vocab.size());
  boost::json::array decoders{{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                              {{"type", "ByteFallback"}},
                              {{"type", "Fuse"}},
                              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}};
  return {{"version", "1.0"},
          {"added_tokens",
           {added_token(0, "<unk>", true), added_token(1, "<s>", true), added_token(2, "</s>", true), added_token(last, "<|user|>", true)}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}, {"split", false}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocab},
            {"merges", {"h e", "l l", "he ll", "hell o", "\u2581 hello"}}}}};
}

inline Result<std::shared_ptr<const text::Tokenizer>> try_load(std::string_view tokenizer_json, std::string_view config = {}) {
  TempFolder folder;
  folder.write("tokenizer.json", tokenizer_json);
  if (!config.empty()) folder.write("tokenizer_config.json", config);
  return text::Tokenizer::load(folder.path());
}

inline std::shared_ptr<const text::Tokenizer> load(const boost::json::object& tokenizer, std::string_view config = {}) {
  auto loaded = try_load(boost::json::serialize(tokenizer), config);
  if (!loaded.ok()) throw std::runtime_error(loaded.error().message);
  return std::move(loaded).value();
}

inline std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline boost::json::value read_json(const std::filesystem::path& path) { return boost::json::parse(read_all(path)); }

inline std::vector<std::int32_t> ids_of(const boost::json::value& list) {
  std::vector<std::int32_t> ids;
  for (const auto& id : list.as_array()) ids.push_back(std::int32_t(id.to_number<std::int64_t>()));
  return ids;
}

inline std::string concatenated(const text::Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  std::string bytes;
  for (const auto id : ids) bytes += tokenizer.token_bytes(id);
  return bytes;
}

}  // namespace lockstep::testing
