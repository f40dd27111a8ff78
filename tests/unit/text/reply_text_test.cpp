// Replies as they stream: characters, reasoning and content, stop strings over tokens.
#include "text/reply_text.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "text/reply_parser.h"
#include "unit/text/small_tokenizer.h"

namespace lockstep::testing {
namespace {

using text::ReplyText;
using text::ReplyTextOptions;
using Ids = std::vector<std::int32_t>;

constexpr std::int32_t kEnd = 258, kThink = 260, kThinkEnd = 261;

/// Bytes as single-byte tokens.
Ids bytes(std::string_view text) {
  Ids ids;
  for (const char c : text) ids.push_back(std::uint8_t(c));
  return ids;
}
Ids operator+(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Reply {
  std::string reasoning, content;
  std::optional<std::string> stop;
  std::size_t tokens = 0;  // up to the one that stopped
  bool operator==(const Reply&) const = default;
};

Reply run(const Ids& ids, ReplyTextOptions options, std::shared_ptr<const text::Tokenizer> tokenizer = load(byte_level_tokenizer())) {
  ReplyText reply(std::move(tokenizer), std::move(options));
  Reply out;
  const auto add = [&](const ReplyText::Delta& delta) {
    out.reasoning += delta.reasoning;
    out.content += delta.content;
    if (delta.stopped) out.stop = delta.stop;
  };
  for (const auto id : ids) {
    out.tokens++;
    add(reply.push(id));
    if (out.stop) {
      EXPECT_EQ(reply.push('x').content, "") << "text after the stop";
      break;
    }
  }
  add(reply.finish());
  return out;
}

ReplyTextOptions thinking(bool starts = true, std::vector<std::string> stop = {}) {
  return {true, starts, kThink, kThinkEnd, std::move(stop)};
}
ReplyTextOptions plain(std::vector<std::string> stop = {}) { return {false, false, std::nullopt, std::nullopt, std::move(stop)}; }

TEST(ReplyText, WholeCharactersOnly) {
  const std::string text = "K\u00f6ln \U0001F468\u200D\U0001F469";
  ReplyText reply(load(byte_level_tokenizer()), plain());
  std::string joined;
  for (const auto id : bytes(text)) {
    const std::string piece = reply.push(id).content;
    EXPECT_EQ(piece.find("\uFFFD"), std::string::npos);
    EXPECT_TRUE(piece.empty() || (std::uint8_t(piece[0]) & 0xC0) != 0x80);
    joined += piece;
  }
  EXPECT_EQ(joined, text);
  EXPECT_EQ(run(bytes("a\xF0\x9F"), plain()).content, "a\uFFFD");
}

TEST(ReplyText, SpecialTokensAddNoTextOthersDo) {
  EXPECT_EQ(run(bytes("a") + Ids{kEnd} + bytes("b") + Ids{kThink, 262, 9999, -1}, plain()).content, "ab<think><call>");
  EXPECT_EQ(run(Ids{0xF0, 0x9F, kEnd, 0x98, 0x80}, plain()).content, "\U0001F600");
}

TEST(ReplyText, SplitsReasoningOnIds) {
  EXPECT_EQ(run(bytes("\n so </think> \n") + Ids{kThinkEnd} + bytes("\n\n yes\n"), thinking()),
            (Reply{"so </think>", " yes\n", std::nullopt, 23}));
  // One leading tag is dropped, a second is text; white space before it never shows.
  EXPECT_EQ(run(bytes("\n") + Ids{kThink} + bytes("a") + Ids{kThink, kThinkEnd} + bytes("b"), thinking()).reasoning, "a<think>");
  EXPECT_EQ(run(Ids{kThink, kThink} + bytes("a"), thinking()).reasoning, "<think>a");
  // A second end tag is content.
  EXPECT_EQ(run(Ids{kThinkEnd, kThinkEnd} + bytes("b"), thinking()).content, "</think>b");
  // The model opens the block itself.
  EXPECT_EQ(run(Ids{kThink} + bytes("\nr\n") + Ids{kThinkEnd} + bytes("\nc"), thinking(false)), (Reply{"r", "c", std::nullopt, 7}));
  // The prompt closed the block: all content, as it is.
  EXPECT_EQ(run(bytes("\na") + Ids{kThink, kThinkEnd}, thinking(false)), (Reply{"", "\na<think></think>", std::nullopt, 4}));
  // Not asked to split.
  EXPECT_EQ(run(Ids{kThink} + bytes("r") + Ids{kThinkEnd}, plain()).content, "<think>r</think>");
  // Cut off inside: all reasoning, trimmed.
  EXPECT_EQ(run(bytes(" r \n"), thinking()), (Reply{"r", "", std::nullopt, 4}));
  EXPECT_EQ(run(bytes("r\xE2\x82") + Ids{kThinkEnd} + bytes("c"), thinking()), (Reply{"r\uFFFD", "c", std::nullopt, 5}));
}

TEST(ReplyText, ReasoningIsTrimmedWhileItStreams) {
  ReplyText reply(load(byte_level_tokenizer()), thinking());
  const auto push = [&](std::string_view text) {
    std::string out;
    for (const auto id : bytes(text)) out += reply.push(id).reasoning;
    return out;
  };
  EXPECT_EQ(push(" \n\u00a0\u3000"), "");
  EXPECT_EQ(push("a"), "a");
  EXPECT_EQ(push(" \u2003\n"), "");
  EXPECT_EQ(push("b"), " \u2003\nb");
  EXPECT_EQ(push("\x1c\x85\u0085 "), "\x1c\uFFFD");  // 0x85 alone is no character
  EXPECT_EQ(reply.push(kThinkEnd).reasoning, "");
  EXPECT_EQ(reply.push('\n').content, "");
  EXPECT_EQ(reply.push(' ').content, " ");
  EXPECT_EQ(reply.push('\n').content, "\n");
}

TEST(ReplyText, StopStrings) {
  EXPECT_EQ(run(bytes("the quick brown fox"), plain({"own fox"})), (Reply{"", "the quick br", "own fox", 19}));
  EXPECT_EQ(run(bytes("Hi\nUser: x"), plain({"\nUser:", "zz"})), (Reply{"", "Hi", "\nUser:", 8}));
  EXPECT_EQ(run(bytes("pleas") + Ids{kEnd}, plain({"as<|end|>"})), (Reply{"", "pleas", std::nullopt, 6}));
  // A token longer than the stop: the text before it is out, the rest is not.
  EXPECT_EQ(run(Ids{'a', 257, 'b'}, plain({"h"})), (Reply{"", "at", "h", 2}));
  // Inside a character's bytes nothing matches, across characters it does.
  EXPECT_EQ(run(bytes("\U0001F600\U0001F601x"), plain({"\U0001F601x"})), (Reply{"", "\U0001F600", "\U0001F601x", 9}));
}

TEST(ReplyText, StopStringsInEachChannel) {
  // The newlines between reasoning and content are no stop.
  EXPECT_EQ(run(bytes("r") + Ids{kThinkEnd} + bytes("\n\nc\n\nd"), thinking(true, {"\n\n"})), (Reply{"r", "c", "\n\n", 7}));
  EXPECT_EQ(run(bytes("\n\nr \n\nq"), thinking(true, {"\n\n"})), (Reply{"r", "", "\n\n", 6}));
  // A match does not reach from one channel into the other; what was held back comes out at the border.
  EXPECT_EQ(run(bytes("aST") + Ids{kThinkEnd} + bytes("OP STOP"), thinking(true, {"STOP"})), (Reply{"aST", "OP ", "STOP", 11}));
}

TEST(ReplyText, LeadingSpaceOfPieces) {
  const auto tokenizer = load(pieces_tokenizer());
  const auto hello = *tokenizer->id_of("\u2581hello");
  EXPECT_EQ(run({hello, hello}, plain(), tokenizer).content, "hello hello");
  EXPECT_EQ(run({1, hello, hello}, plain(), tokenizer).content, "hello hello");
  EXPECT_EQ(run({*tokenizer->id_of("hello"), hello}, plain(), tokenizer).content, "hello hello");
}

TEST(ReplyText, EveryCutOfTokensGivesTheSameText) {
  // "the" as one token, as "th" + "e", or as bytes.
  const std::vector<Ids> ways = {{257}, {256, 'e'}, {'t', 'h', 'e'}};
  for (const auto& way : ways) {
    const Reply reply = run(bytes(" x\xC3") + Ids{0xB6} + way + bytes(" ") + way + Ids{kThinkEnd} + bytes("\n") + way + bytes("END"),
                            thinking(true, {"eE"}));
    EXPECT_EQ(reply.reasoning, "x\u00f6the the");
    EXPECT_EQ(reply.content, "th");
    EXPECT_EQ(reply.stop, "eE");
  }
}

TEST(ReplyParser, SpaceAsPythonStrips) {
  for (const char* space : {" ",      "\t",     "\n",     "\v",     "\f",     "\r",     "\x1c",   "\x1d",   "\x1e",   "\x1f",
                            "\u0085", "\u00a0", "\u1680", "\u2000", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"}) {
    const std::string around = std::string(space) + "a" + space;
    EXPECT_EQ(text::leading_space_bytes(around), std::string_view(space).size()) << around;
    EXPECT_EQ(text::trailing_space_bytes(around), std::string_view(space).size()) << around;
  }
  for (const char* other : {"\u200b", "\u180e", "\ufeff", "\u2060", "\u00c5", "\u0145", "a", "\x1b", "\u2007b"}) {
    EXPECT_EQ(text::trailing_space_bytes(other), 0u) << other;
  }
  EXPECT_EQ(text::trailing_space_bytes("\u0145"), 0u);  // C5 85: ends like U+0085
  EXPECT_EQ(text::trailing_space_bytes(""), 0u);
}

}  // namespace
}  // namespace lockstep::testing
