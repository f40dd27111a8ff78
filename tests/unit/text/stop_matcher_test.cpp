// Stop strings in pieces, against a search of the whole text after each byte.
#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

namespace lockstep::text {
namespace {

struct Outcome {
  std::string text;
  std::optional<std::string> stop;
  bool operator==(const Outcome&) const = default;
};

Outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  std::string text;
  for (const auto& piece : pieces) {
    auto part = matcher.push(piece);
    text += part.text;
    if (part.stopped) return {text, part.stop};
  }
  return {text + matcher.finish(), std::nullopt};
}

/// The definition: the first end of any stop string, the longest of those.
Outcome expected(const std::vector<std::string>& stops, const std::string& text) {
  for (std::size_t end = 1; end <= text.size(); end++) {
    const std::string* best = nullptr;
    for (const auto& stop : stops) {
      if (!stop.empty() && std::string_view(text).substr(0, end).ends_with(stop) && (!best || stop.size() > best->size())) best = &stop;
    }
    if (best) return {text.substr(0, end - best->size()), *best};
  }
  return {text, std::nullopt};
}

std::vector<std::string> singly(const std::string& text) {
  std::vector<std::string> out;
  for (const char c : text) out.emplace_back(1, c);
  return out;
}

TEST(StopMatcher, AcrossPieces) {
  EXPECT_EQ(run({"own fox"}, {"the quick br", "own", " f", "ox jumps"}), (Outcome{"the quick br", "own fox"}));
  EXPECT_EQ(run({"\nUser:"}, {"Hi.", "\n", "User", ":"}), (Outcome{"Hi.", "\nUser:"}));
  EXPECT_EQ(run({"\nUser:"}, {"Hi.", "\n", "User", "s"}), (Outcome{"Hi.\nUsers", std::nullopt}));
  EXPECT_EQ(run({"x"}, {"x"}), (Outcome{"", "x"}));
  EXPECT_EQ(run({}, {"a", "b"}), (Outcome{"ab", std::nullopt}));
  EXPECT_EQ(run({""}, {"a"}), (Outcome{"a", std::nullopt}));
}

TEST(StopMatcher, EarliestEndThenLongest) {
  EXPECT_EQ(run({"abcd", "bc"}, {"abcd"}), (Outcome{"a", "bc"}));
  EXPECT_EQ(run({"bc", "abc"}, {"xabc"}), (Outcome{"x", "abc"}));
  EXPECT_EQ(run({"abab", "b!"}, {"abab!"}), (Outcome{"", "abab"}));
  EXPECT_EQ(run({"aab"}, {"aaaab"}), (Outcome{"aa", "aab"}));
}

TEST(StopMatcher, HoldsBackOnlyARealBeginning) {
  const std::string stop(40, 'z');
  StopMatcher matcher({stop + "!"});
  EXPECT_EQ(matcher.push("pleas").text, "pleas");
  EXPECT_EQ(matcher.push("zz").text, "");
  EXPECT_EQ(matcher.push("y").text, "zzy");
  EXPECT_EQ(matcher.push(stop).text, "");
  EXPECT_EQ(matcher.push("z").text, "z");  // one more than can still match
  EXPECT_EQ(matcher.finish(), stop);
}

TEST(StopMatcher, InsideCharacters) {
  // The stop's first byte is the emoji's too.
  EXPECT_EQ(run({"\U0001F601"}, {"\U0001F600", "\U0001F601"}), (Outcome{"\U0001F600", "\U0001F601"}));
  StopMatcher matcher({"\U0001F601"});
  EXPECT_EQ(matcher.push("\U0001F600").text, "\U0001F600");
}

TEST(StopMatcher, RandomAgainstTheDefinition) {
  const auto seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int round = 0; round < 20000; round++) {
    const auto word = [&](std::size_t most) {
      std::string s(random() % (most + 1), '\0');
      for (char& c : s) c = char('a' + random() % 2);
      return s;
    };
    std::vector<std::string> stops(random() % 4);
    for (auto& stop : stops) stop = word(6);
    const std::string text = word(20);
    const Outcome outcome = expected(stops, text);
    EXPECT_EQ(run(stops, singly(text)), outcome) << "seed " << seed;
    const std::size_t cut = random() % (text.size() + 1);
    EXPECT_EQ(run(stops, {text.substr(0, cut), text.substr(cut)}), outcome) << "seed " << seed;
  }
}

TEST(StopMatcher, LinearOnItsWorstCase) {
  StopMatcher matcher({std::string(5000, 'a') + "b"});
  std::size_t out = 0;
  for (int i = 0; i < 200000; i++) out += matcher.push("a").text.size();
  EXPECT_EQ(out, 195000u);
}

}  // namespace
}  // namespace lockstep::text
