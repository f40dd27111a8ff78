#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "server/json_input.h"
#include "server/json_text.h"

namespace lockstep::server {
namespace {

std::string as_json(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

std::string parse(std::string_view text, int depth = 64, std::size_t bytes = 1 << 20) {
  BoundedMemory memory(bytes);
  const auto value = parse_json(text, "the body", depth, memory);
  return value.ok() ? boost::json::serialize(*value) : value.error().message;
}

TEST(JsonText, EscapesWhatJsonMustEscapeAndNothingElse) {
  EXPECT_EQ(as_json("a\"b\\c\n\r\t\x01/"), R"("a\"b\\c\n\r\t\u0001/")");
  EXPECT_EQ(as_json(std::string_view("\0x", 2)), "\"\\u0000x\"");
  EXPECT_EQ(as_json("Gr\xC3\xB6\xC3\x9F" "e \xE4\xBD\xA0 \xF0\x9F\x91\x8D"), "\"Gr\xC3\xB6\xC3\x9F" "e \xE4\xBD\xA0 \xF0\x9F\x91\x8D\"");
}

TEST(JsonText, BytesThatAreNotUtf8BecomeTheReplacementCharacter) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(as_json("\xFF"), '"' + r + '"');
  EXPECT_EQ(as_json("a\xC3"), "\"a" + r + '"');                           // cut character
  EXPECT_EQ(as_json("\xC0\xAF"), '"' + r + r + '"');                      // overlong
  EXPECT_EQ(as_json("\xED\xA0\x80"), '"' + r + r + r + '"');              // surrogate
  EXPECT_EQ(as_json("\xF4\x90\x80\x80"), '"' + r + r + r + r + '"');      // above U+10FFFF
}

TEST(JsonText, EveryByteStringGivesJsonThatParses) {
  unsigned state = 7;
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (int j = 0; j < 12; ++j) text += static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
    boost::json::error_code ec;
    boost::json::parse(as_json(text), ec);
    ASSERT_FALSE(ec) << i;
  }
}

TEST(JsonText, CommasStandBetweenMembersOnly) {
  std::string out = "data: ";
  JsonText json(out);
  json.open_object().text("a", "x").number("b", -3).open_array("c").element("1").element("2").close_array().open_object("d").null("e").close_object();
  json.boolean("f", true).real("g", 0.5).real("h", 1.0 / 0.0);
  const std::int32_t ids[] = {1, 22};
  json.ids("i", ids).close_object();
  EXPECT_EQ(out, R"(data: {"a":"x","b":-3,"c":["1","2"],"d":{"e":null},"f":true,"g":0.5,"h":null,"i":[1,22]})");
}

TEST(JsonInput, TakesJsonAndSaysWhereItIsNone) {
  EXPECT_EQ(parse(R"({"a":[1,true,null,"x\u0000"]})"), R"({"a":[1,true,null,"x\u0000"]})");
  EXPECT_NE(parse("[1").find("is not valid JSON: incomplete"), std::string::npos);
  EXPECT_NE(parse("").find("is not valid JSON"), std::string::npos);
  EXPECT_NE(parse("{} x").find("extra data (at byte 3)"), std::string::npos);
  EXPECT_NE(parse("\xEF\xBB\xBF{}").find("(at byte 0)"), std::string::npos);   // byte order mark
  EXPECT_NE(parse("\"\\ud800\"").find("is not valid JSON"), std::string::npos);  // lone surrogate
  EXPECT_NE(parse("\"\xff\"").find("is not valid JSON"), std::string::npos);
  EXPECT_NE(parse("NaN").find("is not valid JSON"), std::string::npos);
}

TEST(JsonInput, RefusesNumbersThatAreNotFinite) {
  EXPECT_NE(parse("[1e999]").find("too large for a double"), std::string::npos);
  EXPECT_NE(parse("[-1e999]").find("too large for a double"), std::string::npos);
  EXPECT_EQ(parse("[1e-999]"), "[0E0]");
}

TEST(JsonInput, RefusesDuplicateKeysByName) {
  EXPECT_NE(parse(R"({"a":1,"b":{"k":1,"k":2}})").find("has the key \"k\" twice"), std::string::npos);
  EXPECT_EQ(parse(R"({"a":{"k":1},"b":{"k":2}})"), R"({"a":{"k":1},"b":{"k":2}})");
}

TEST(JsonInput, BoundsDepthAndMemory) {
  EXPECT_NE(parse(std::string(65, '[') + std::string(65, ']')).find("nested deeper than 64"), std::string::npos);
  EXPECT_EQ(parse(std::string(64, '[') + std::string(64, ']')).substr(0, 4), "[[[[");
  EXPECT_NE(parse(std::string(1'000'000, '[')).find("nested deeper"), std::string::npos);
  std::string many = "[0";
  for (int i = 0; i < 200'000; ++i) many += ",0";
  EXPECT_NE(parse(many + "]").find("too many values"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::server
