// UTF-8 in pieces.
#include "text/text_stream.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace lockstep::text {
namespace {

std::string in_pieces(const std::vector<std::string>& pieces) {
  TextStream stream;
  std::string out;
  for (const auto& piece : pieces) {
    const std::string part = stream.push(piece);
    EXPECT_EQ(replace_invalid(part), part) << "a piece is not valid UTF-8";
    out += part;
  }
  return out + stream.finish();
}

TEST(TextStream, EveryCutGivesTheSame) {
  // Expected texts are Python's bytes.decode("utf-8", "replace").
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"plain", "plain"},
      {"K\u00f6ln \u20ac \U0001F600\u200D\U0001F467", "K\u00f6ln \u20ac \U0001F600\u200D\U0001F467"},
      {"\xF0\x9F\x98", "\uFFFD"},
      {"a\xF0\x9F\x98z", "a\uFFFDz"},
      {"\xF0\x9F\xFF\x98", "\uFFFD\uFFFD\uFFFD"},
      {"\xC0\xAF", "\uFFFD\uFFFD"},
      {"\xE0\x80\xAF", "\uFFFD\uFFFD\uFFFD"},
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
      {"\xF5\x80\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xE2\x82\xE2\x82\xAC", "\uFFFD\u20ac"},
      {"\xC3\xC3\xB6", "\uFFFD\u00f6"},
      {"\x80\xBF", "\uFFFD\uFFFD"},
      {"\xF1\x80\x80\xE1\x80\xC2 b", "\uFFFD\uFFFD\uFFFD b"},
      {std::string("\0a", 2), std::string("\0a", 2)},
  };
  for (const auto& [bytes, expected] : cases) {
    EXPECT_EQ(replace_invalid(bytes), expected);
    std::vector<std::string> singly;
    for (const char c : bytes) singly.emplace_back(1, c);
    EXPECT_EQ(in_pieces(singly), expected);
    for (std::size_t i = 0; i <= bytes.size(); i++) {
      for (std::size_t j = i; j <= bytes.size(); j++) {
        EXPECT_EQ(in_pieces({bytes.substr(0, i), bytes.substr(i, j - i), bytes.substr(j)}), expected);
      }
    }
  }
}

TEST(TextStream, HoldsBackOnlyABeginning) {
  TextStream stream;
  EXPECT_EQ(stream.push("a\xF0\x9F"), "a");
  EXPECT_EQ(stream.push("\x98"), "");
  EXPECT_EQ(stream.push("\x80!"), "\U0001F600!");
  EXPECT_EQ(stream.push("\xE2"), "");
  EXPECT_EQ(stream.push("x"), "\uFFFDx");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, RandomBytesInRandomPieces) {
  const auto seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int round = 0; round < 5000; round++) {
    std::string bytes(random() % 24, '\0');
    // Mostly leads and continuations, so that characters come about.
    for (char& c : bytes) c = char(random() % 4 == 0 ? random() % 256 : 0x80 + random() % 128);
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t size = random() % 4;
      pieces.push_back(bytes.substr(at, size));
      at += size;
    }
    EXPECT_EQ(in_pieces(pieces), replace_invalid(bytes)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace lockstep::text
