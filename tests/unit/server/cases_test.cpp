// Runs tests/server/cases/*.case; their README has the format.
#include <algorithm>
#include <fstream>
#include <sstream>

#include "unit/server/serving.h"

namespace lockstep::server {
namespace {

namespace json = boost::json;

struct Case {
  std::string name, method, path, headers, body;
  int line = 0;
  std::string status;
  std::vector<std::pair<std::string, std::string>> reply_headers;
  std::string expected;
};

// [[N*text]] and \xNN. Other escapes stay: they are JSON's.
std::string expand(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto star = text.find('*', i);
    const auto close = text.find("]]", i);
    const bool count = text.compare(i, 2, "[[") == 0 && star != std::string::npos && close != std::string::npos && star > i + 2 && star < close &&
                       std::all_of(text.begin() + static_cast<std::ptrdiff_t>(i) + 2, text.begin() + static_cast<std::ptrdiff_t>(star), ::isdigit);
    if (count) {
      const std::string piece = text.substr(star + 1, close - star - 1);
      for (long n = std::atol(text.c_str() + i + 2); n > 0; --n) out += piece;
      i = close + 2;
    } else if (text.compare(i, 2, "\\x") == 0) {
      out += static_cast<char>(std::stoi(text.substr(i + 2, 2), nullptr, 16));
      i += 4;
    } else {
      out += text[i++];
    }
  }
  return out;
}

std::vector<Case> read_cases(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<Case> cases;
  enum { kNone, kRequest, kReply } part = kNone;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.starts_with("=== ")) {
      cases.push_back({});
      cases.back().name = line.substr(4);
      cases.back().line = number;
      part = kRequest;
    } else if (line.starts_with("> ") && part == kRequest) {
      Case& c = cases.back();
      if (c.method.empty()) {
        const auto space = line.find(' ', 2);
        c.method = line.substr(2, space - 2);
        c.path = line.substr(space + 1);
      } else {
        c.headers += expand(line.substr(2)) + "\r\n";
      }
    } else if (line.starts_with("< ")) {
      Case& c = cases.back();
      part = kReply;
      if (c.status.empty()) c.status = line.substr(2);
      else c.reply_headers.emplace_back(line.substr(2, line.find(':') - 2), line.substr(line.find(':') + 2));
    } else if (!line.empty() && !(part != kRequest && line[0] == '#')) {
      if (part == kRequest) cases.back().body += line;
      if (part == kReply) cases.back().expected += line;
    }
  }
  return cases;
}

// A stream as one value.
json::value stream_summary(const std::string& body) {
  json::object out{{"content", ""}, {"reasoning_content", ""}, {"text", ""}, {"done", false}};
  const auto add = [&](const char* name, const json::object& from) {
    if (const auto* piece = from.if_contains(name)) out[name].as_string().append(piece->as_string());
  };
  for (const auto& data : testing::stream_events(body)) {
    if (data == "[DONE]") {
      out["done"] = true;
      continue;
    }
    const json::value chunk = json::parse(data);
    for (const char* name : {"usage", "error", "lockstep"}) {
      const auto* found = chunk.as_object().if_contains(name);
      if (found && !found->is_null()) out[name] = *found;
    }
    const auto* choices = chunk.as_object().if_contains("choices");
    if (!choices || choices->as_array().empty()) continue;
    const json::object& choice = choices->at(0).as_object();
    if (!choice.at("finish_reason").is_null()) out["finish_reason"] = choice.at("finish_reason");
    add("text", choice);
    if (const auto* delta = choice.if_contains("delta")) {
      add("content", delta->as_object());
      add("reasoning_content", delta->as_object());
    }
  }
  return out;
}

// Empty if `expected` is part of `got`, else what differs.
std::string difference(const json::value& expected, const json::value& got, const std::string& at = "") {
  if (expected == "?") return got.is_null() ? at + " is null" : "";
  if (const auto* want = expected.if_object()) {
    if (!got.is_object()) return at + " is no object: " + json::serialize(got);
    for (const auto& member : *want) {
      const std::string name = at + "." + std::string(member.key());
      const auto* found = got.as_object().if_contains(member.key());
      if (!found) return name + " is missing in " + json::serialize(got).substr(0, 500);
      if (auto words = difference(member.value(), *found, name); !words.empty()) return words;
    }
    return "";
  }
  if (const auto* want = expected.if_array()) {
    if (!got.is_array() || got.as_array().size() != want->size()) return at + " is " + json::serialize(got).substr(0, 500);
    for (std::size_t i = 0; i < want->size(); ++i) {
      if (auto words = difference((*want)[i], got.as_array()[i], at + "[" + std::to_string(i) + "]"); !words.empty()) return words;
    }
    return "";
  }
  if (expected.is_string() && got.is_string() && expected.as_string().starts_with("~")) {
    const std::string part(expected.as_string().subview(1));
    return std::string(got.as_string()).find(part) == std::string::npos ? at + " is " + json::serialize(got) : "";
  }
  return expected == got ? "" : at + " is " + json::serialize(got).substr(0, 500) + ", not " + json::serialize(expected);
}

class Cases : public Serving {};

TEST_F(Cases, GetTheirReplies) {
  start(32768);
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/server/cases")) {
    if (entry.path().extension() != ".case") continue;
    for (const Case& c : read_cases(entry.path())) {
      SCOPED_TRACE(entry.path().filename().string() + ":" + std::to_string(c.line) + ": " + c.name);
      ++count;
      const auto reply = testing::fetch(port, c.method, c.path, expand(c.body), c.headers);
      EXPECT_EQ(std::to_string(reply.status), c.status) << reply.body.substr(0, 500);
      EXPECT_TRUE(reply.complete);
      for (const auto& [name, value] : c.reply_headers) EXPECT_EQ(reply.headers.contains(name) ? reply.headers.at(name) : "(none)", value) << name;
      if (c.expected.empty()) continue;
      const bool stream = reply.headers.contains("content-type") && reply.headers.at("content-type").starts_with("text/event-stream");
      json::error_code ec;
      const json::value got = stream ? stream_summary(reply.body) : json::parse(reply.body, ec);
      ASSERT_FALSE(ec) << reply.body;
      EXPECT_EQ(difference(json::parse(c.expected), got), "");
    }
  }
  EXPECT_GT(count, 120);
  EXPECT_EQ(get("/health").status, 200);
}

// A comparison that never fails proves nothing.
TEST(CaseComparison, GoesRed) {
  const auto differs = [](const char* expected, const char* got) { return !difference(json::parse(expected), json::parse(got)).empty(); };
  EXPECT_FALSE(differs(R"({"a":{"b":"~x"},"c":[1,"?"]})", R"({"a":{"b":"axb","d":1},"c":[1,2]})"));
  EXPECT_TRUE(differs(R"({"a":1})", R"({"a":2})"));
  EXPECT_TRUE(differs(R"({"a":1})", R"({})"));
  EXPECT_TRUE(differs(R"({"a":[1]})", R"({"a":[1,2]})"));
  EXPECT_TRUE(differs(R"({"a":"~x"})", R"({"a":"y"})"));
  EXPECT_TRUE(differs(R"({"a":"?"})", R"({"a":null})"));
  EXPECT_TRUE(differs(R"({"a":null})", R"({"a":0})"));
}

}  // namespace
}  // namespace lockstep::server
