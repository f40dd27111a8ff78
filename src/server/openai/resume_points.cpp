#include "server/openai/resume_points.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <span>

namespace lockstep::server::openai {
namespace json = boost::json;
namespace {

constexpr std::size_t kBeyond = 64;  // bytes encoded past the end of the shared text, so that its last token is whole

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

json::object message(const char* role, const json::storage_ptr& memory) {
  json::object out(memory);
  out["role"] = role;
  out["content"] = "x";
  return out;
}

}  // namespace

std::int64_t shared_tokens(const text::Tokenizer& tokenizer, const std::string& rendered, const std::vector<std::int32_t>& ids, const std::string& other) {
  const auto shared = static_cast<std::size_t>(
      std::mismatch(rendered.begin(), rendered.begin() + static_cast<std::ptrdiff_t>(std::min(rendered.size(), other.size())), other.begin()).first -
      rendered.begin());
  // Text is cut at special tokens before it is encoded: from the last one inside the shared text on, encode again; before it, nothing can
  // differ. Message text is marked, so every spelling found in `rendered` is the token.
  std::size_t cut = rendered.size(), index = ids.size();  // text and tokens before this special token
  bool found = false;
  while (!found && index > 0) {
    --index;
    if (!tokenizer.is_special(ids[index])) continue;
    const std::string spelling = tokenizer.decode(std::span(&ids[index], 1), false);
    const auto at = spelling.empty() || cut == 0 ? std::string::npos : rendered.rfind(spelling, cut - 1);
    if (at == std::string::npos) return 0;
    cut = at;
    found = cut <= shared;
  }
  if (!found) index = cut = 0;
  std::size_t end = std::min(other.size(), shared + kBeyond);
  while (end < other.size() && continues_character(other[end])) ++end;
  const auto tail = tokenizer.encode_chat(std::string_view(other).substr(cut, end - cut));
  if (!tail.ok()) return 0;
  for (const std::int32_t id : *tail) {
    if (index == ids.size() || ids[index] != id) break;
    ++index;
  }
  return static_cast<std::int64_t>(index);
}

std::vector<std::int64_t> resume_points(const engine::ModelInfo& model, json::object& variables, const std::string& rendered,
                                        const std::vector<std::int32_t>& ids) {
  std::vector<std::int64_t> points;
  const auto add = [&](const std::string& other) {
    const std::int64_t shared = std::min(shared_tokens(*model.tokenizer, rendered, ids, other), static_cast<std::int64_t>(ids.size()) - 1);
    if (shared > 0) points.push_back(shared);
  };
  json::array& messages = variables["messages"].get_array();

  messages.push_back(message("assistant", messages.storage()));
  messages.push_back(message("user", messages.storage()));
  if (const auto follow_up = model.chat_template->render(json::serialize(variables)); follow_up.ok()) add(*follow_up);
  messages.pop_back();
  messages.pop_back();

  json::value last = messages.back();
  if (json::object* edited = messages.back().if_object()) {
    (*edited)["content"] = "x";
    if (const auto other = model.chat_template->render(json::serialize(variables)); other.ok()) add(*other);
  }
  messages.back() = std::move(last);

  // Another conversation under the same system prompt.
  if (const json::object* first = messages.front().if_object(); messages.size() > 2 && first && first->contains("role") && first->at("role") == "system") {
    json::array all = std::move(messages);
    messages = json::array({all.front(), message("user", variables.storage())}, variables.storage());
    if (const auto other = model.chat_template->render(json::serialize(variables)); other.ok()) add(*other);
    messages = std::move(all);
  }

  std::sort(points.begin(), points.end());
  points.erase(std::unique(points.begin(), points.end()), points.end());
  return points;
}

}  // namespace lockstep::server::openai
