#include "text/tokenizer.h"

#include "text/abi.h"
#include "text/text_file.h"
#include "text/text_stream.h"

namespace lockstep::text {
namespace {

// The largest published tokenizer.json has 35 MB.
constexpr std::size_t kMostTokenizerBytes = std::size_t(256) << 20;
constexpr std::size_t kMostConfigBytes = std::size_t(16) << 20;

std::optional<std::string> optional_text(lockstep_text_view v) {
  if (!v.data) return std::nullopt;
  return std::string(reinterpret_cast<const char*>(v.data), v.size);
}

}  // namespace

struct Tokenizer::Impl {
  lockstep_tokenizer* handle;
  lockstep_token_table table;

  explicit Impl(lockstep_tokenizer* h) : handle(h), table(lockstep_tokenizer_table(h)) {}
  ~Impl() { lockstep_tokenizer_free(handle); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  bool known(std::int32_t id) const { return id >= 0 && std::size_t(id) < table.tokens; }
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::filesystem::path& folder) {
  LOCKSTEP_ASSIGN(const std::string json, read_text_file(folder / "tokenizer.json", kMostTokenizerBytes));
  auto config = read_text_file(folder / "tokenizer_config.json", kMostConfigBytes);
  if (!config.ok() && config.error().code != ErrorCode::kNotFound) return config.error();
  lockstep_tokenizer* handle = nullptr;
  lockstep_text_bytes error{};
  const int code = lockstep_tokenizer_new(view(json), config.ok() ? view(*config) : lockstep_text_view{}, &handle, &error);
  if (code != LOCKSTEP_TEXT_OK) return take_error(code, error, folder.string() + "/", "tokenizer.json");
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::make_unique<Impl>(handle)));
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  lockstep_text_ids ids{};
  lockstep_text_bytes error{};
  const int code = lockstep_tokenizer_encode(impl_->handle, view(text), add_special_tokens, &ids, &error);
  if (code != LOCKSTEP_TEXT_OK) return take_error(code, error, "", "");
  std::vector<std::int32_t> out(ids.data, ids.data + ids.size);
  lockstep_text_ids_free(ids);
  return out;
}

Result<std::vector<std::int32_t>> Tokenizer::encode_chat(std::string_view rendered) const {
  lockstep_text_ids ids{};
  lockstep_text_bytes error{};
  const int code = lockstep_tokenizer_encode_chat(impl_->handle, view(rendered), &ids, &error);
  if (code != LOCKSTEP_TEXT_OK) return take_error(code, error, "", "");
  std::vector<std::int32_t> out(ids.data, ids.data + ids.size);
  lockstep_text_ids_free(ids);
  return out;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
  std::string bytes;
  for (const std::int32_t id : ids) {
    if (!skip_special_tokens || !is_special(id)) bytes += token_bytes(id);
  }
  const bool strip = strips_leading_space() && bytes.starts_with(' ');
  return replace_invalid(std::string_view(bytes).substr(strip ? 1 : 0));
}

std::string_view Tokenizer::token_bytes(std::int32_t id) const {
  if (!impl_->known(id)) return {};
  const lockstep_token_table& table = impl_->table;
  return {reinterpret_cast<const char*>(table.bytes) + table.offsets[id], table.offsets[id + 1] - table.offsets[id]};
}

bool Tokenizer::strips_leading_space() const { return impl_->table.strips_leading_space != 0; }
bool Tokenizer::is_special(std::int32_t id) const { return impl_->known(id) && impl_->table.flags[id] != 0; }
std::int32_t Tokenizer::largest_id() const { return std::int32_t(impl_->table.tokens) - 1; }

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  const std::int64_t id = lockstep_tokenizer_id_of(impl_->handle, view(token));
  if (id < 0) return std::nullopt;
  return std::int32_t(id);
}

std::optional<std::int32_t> Tokenizer::eos_id() const {
  const auto token = eos_token();
  return token ? id_of(*token) : std::nullopt;
}
std::optional<std::string> Tokenizer::eos_token() const {
  return optional_text(lockstep_tokenizer_named(impl_->handle, view("eos_token")));
}
std::optional<std::string> Tokenizer::bos_token() const {
  return optional_text(lockstep_tokenizer_named(impl_->handle, view("bos_token")));
}

const lockstep_tokenizer* Tokenizer::handle() const { return impl_->handle; }

}  // namespace lockstep::text
