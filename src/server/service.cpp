#include "server/service.h"

#include <openssl/rand.h>

#include <ctime>

#include "base/check.h"
#include "base/sha256.h"

namespace lockstep::server {
namespace {

std::string make_fingerprint(const engine::ModelInfo& model) {
  Sha256 hash;
  const std::string words = model.name + '\n' + model.family + '\n' + std::to_string(model.weight_bytes) + '\n' + std::to_string(model.context);
  hash.update(std::as_bytes(std::span(words.data(), words.size())));
  return "fp_" + hash.hex().substr(0, 12);
}

}  // namespace

bool OnceLog::first(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (seen_.size() >= 256 || seen_.contains(text)) return false;
  seen_.emplace(text);
  return true;
}

Service::Service(engine::Engine& engine_, std::string served_name, const Limits& limits_)
    : engine(engine_),
      model(engine_.info()),
      name(served_name.empty() ? model.name : std::move(served_name)),
      fingerprint(make_fingerprint(model)),
      created(static_cast<std::int64_t>(std::time(nullptr))),
      limits(limits_) {}

std::string random_id(std::string_view prefix) {
  unsigned char bytes[16];
  LOCKSTEP_CHECK(RAND_bytes(bytes, sizeof bytes) == 1);
  std::string id(prefix);
  for (const unsigned char b : bytes) {
    id += "0123456789abcdef"[b >> 4];
    id += "0123456789abcdef"[b & 15];
  }
  return id;
}

std::string log_text(std::string_view text, std::size_t limit) {
  std::string out;
  for (const char c : text.substr(0, limit)) {
    if (c >= 0x20 && c < 0x7F) {
      out += c;
    } else {
      out += "\\x";
      out += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4];
      out += "0123456789abcdef"[static_cast<unsigned char>(c) & 15];
    }
  }
  if (text.size() > limit) out += "...";
  return out;
}

}  // namespace lockstep::server
