#include "text/chat_template.h"

#include <fmt/format.h>

#include <ctime>

#include "text/abi.h"
#include "text/text_file.h"
#include "text/text_stream.h"

namespace lockstep::text {
namespace {

constexpr std::size_t kMostTemplateBytes = std::size_t(1) << 20;
constexpr std::size_t kMostConfigBytes = std::size_t(16) << 20;

/// strftime_now of the templates: local time.
std::size_t strftime_now(const std::uint8_t* format, std::size_t format_size, std::uint8_t* out, std::size_t capacity) {
  const std::string text(reinterpret_cast<const char*>(format), format_size);
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  return std::strftime(reinterpret_cast<char*>(out), capacity, text.c_str(), &parts);
}

struct Source {
  std::string file, text;
};

Result<Source> find_source(const std::filesystem::path& folder) {
  auto jinja = read_text_file(folder / "chat_template.jinja", kMostTemplateBytes);
  if (jinja.ok()) return Source{"chat_template.jinja", std::move(jinja).value()};
  if (jinja.error().code != ErrorCode::kNotFound) return jinja.error();
  for (const char* file : {"chat_template.json", "tokenizer_config.json"}) {
    auto json = read_text_file(folder / file, kMostConfigBytes);
    if (!json.ok() && json.error().code != ErrorCode::kNotFound) return json.error();
    if (!json.ok()) continue;
    lockstep_text_bytes text{}, error{};
    const int code = lockstep_template_source(view(*json), &text, &error);
    if (code == LOCKSTEP_TEXT_OK) return Source{file, take(text)};
    if (code != LOCKSTEP_TEXT_ABSENT) return take_error(code, error, fmt::format("{}/{}: ", folder.string(), file), file);
    lockstep_text_bytes_free(error);
  }
  return Error{ErrorCode::kNotFound,
               fmt::format("{} has no chat template (chat_template.jinja, chat_template.json, or chat_template in tokenizer_config.json)",
                           folder.string()),
               "chat_template"};
}

}  // namespace

std::string mark_plain(const Tokenizer& tokenizer, std::string_view text, bool keep_think_tags) {
  const std::string valid = replace_invalid(text);
  lockstep_text_bytes marked{}, error{};
  const int code = lockstep_tokenizer_mark_plain(tokenizer.handle(), view(valid), keep_think_tags, &marked, &error);
  if (code == LOCKSTEP_TEXT_OK) return take(marked);
  // A normalizer that fails on this text hides where spellings are: every character is marked, so none is a spelling.
  lockstep_text_bytes_free(error);
  std::string everywhere;
  for (std::size_t i = 0; i < valid.size(); i++) {
    everywhere += valid[i];
    if (i + 1 == valid.size() || (std::uint8_t(valid[i + 1]) & 0xC0) != 0x80) everywhere += kPlainMark;
  }
  return everywhere;
}

struct ChatTemplate::Impl {
  std::shared_ptr<const Tokenizer> tokenizer;
  lockstep_template* handle;
  std::string file;

  Impl(std::shared_ptr<const Tokenizer> t, lockstep_template* h, std::string f) : tokenizer(std::move(t)), handle(h), file(std::move(f)) {}
  ~Impl() { lockstep_template_free(handle); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::load(const std::filesystem::path& folder,
                                                               std::shared_ptr<const Tokenizer> tokenizer) {
  LOCKSTEP_ASSIGN(Source source, find_source(folder));
  lockstep_template* handle = nullptr;
  lockstep_text_bytes error{};
  const int code = lockstep_template_new(tokenizer->handle(), view(source.file), view(source.text), strftime_now, &handle, &error);
  if (code != LOCKSTEP_TEXT_OK) return take_error(code, error, folder.string() + "/", source.file);
  return std::shared_ptr<const ChatTemplate>(
      new ChatTemplate(std::make_unique<Impl>(std::move(tokenizer), handle, std::move(source.file))));
}

Result<std::string> ChatTemplate::render(std::string_view variables_json) const {
  lockstep_text_bytes text{}, error{};
  const int code = lockstep_template_render(impl_->handle, view(variables_json), &text, &error);
  if (code != LOCKSTEP_TEXT_OK) return take_error(code, error, "", "messages");
  return take(text);
}

}  // namespace lockstep::text
