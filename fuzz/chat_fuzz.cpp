// Messages through the bundled model's template and encoder, and replies through the streaming text. The first byte chooses: the rest is
// the template's variables (any JSON, or none), the text of messages (never a control token), or token ids.
#include <algorithm>
#include <boost/json.hpp>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.h"
#include "text/reply_text.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"

namespace {

using namespace lockstep::text;

void require(bool holds) {
  if (!holds) std::abort();
}

struct Bundled {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat;
};

const Bundled& bundled() {
  static const Bundled model = [] {
    const char* set = std::getenv("LOCKSTEP_FUZZ_MODEL");
    const auto root = std::filesystem::path(__FILE__).parent_path().parent_path();
    const std::filesystem::path folder = set ? std::filesystem::path(set) : root / "models/tiny-qwen3_5-mlx-4bit";
    auto tokenizer = Tokenizer::load(folder).value();
    auto chat = ChatTemplate::load(folder, tokenizer).value();
    return Bundled{std::move(tokenizer), std::move(chat)};
  }();
  return model;
}

void check_ids(const std::vector<std::int32_t>& ids) {
  for (const auto id : ids) require(id >= 0 && id <= bundled().tokenizer->largest_id());
}

void render_variables(std::string_view json) {
  const auto rendered = bundled().chat->render(json);
  if (!rendered.ok()) {
    require(rendered.error().code == lockstep::ErrorCode::kInvalidArgument && !rendered.error().message.empty());
    return;
  }
  const auto ids = bundled().tokenizer->encode_chat(*rendered);
  require(ids.ok());
  check_ids(*ids);
}

void render_text(std::string_view text) {
  const Tokenizer& tokenizer = *bundled().tokenizer;
  // Two messages that meet in the middle of whatever the text spells.
  const std::size_t half = text.size() / 2;
  boost::json::array messages;
  for (const auto part : {text.substr(0, half), text.substr(half)}) {
    messages.push_back({{"role", "user"}, {"content", mark_plain(tokenizer, part, false)}});
  }
  const auto rendered =
      bundled().chat->render(boost::json::serialize(boost::json::object{{"messages", messages}, {"add_generation_prompt", true}}));
  require(rendered.ok());
  const auto ids = tokenizer.encode_chat(*rendered);
  require(ids.ok());
  check_ids(*ids);
  const auto count = [&](std::string_view token) { return std::count(ids->begin(), ids->end(), *tokenizer.id_of(token)); };
  require(count("<|im_start|>") == 3 && count("<|im_end|>") == 2 && count("<think>") == 1 && count("</think>") == 1 &&
          count("<tool_call>") == 0);
}

void stream(std::string_view bytes) {
  const auto& tokenizer = bundled().tokenizer;
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) ids.push_back(std::uint8_t(bytes[i]) << 8 | std::uint8_t(bytes[i + 1]));
  ReplyText plain(tokenizer, {});
  ReplyText stopping(tokenizer, {true, true, tokenizer->id_of("<think>"), tokenizer->id_of("</think>"), {"a", "the", "\n\n", "\u00e9"}});
  std::string text;
  for (const auto id : ids) {
    const auto delta = plain.push(id);
    require(!delta.stopped && delta.reasoning.empty() && replace_invalid(delta.content) == delta.content);
    text += delta.content;
    const auto split = stopping.push(id);
    require(replace_invalid(split.content) == split.content && replace_invalid(split.reasoning) == split.reasoning);
  }
  require(text + plain.finish().content == tokenizer->decode(ids, true));
  stopping.finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      render_variables(rest);
      break;
    case 1:
      render_text(rest);
      break;
    default:
      stream(rest);
      break;
  }
  return 0;
}
