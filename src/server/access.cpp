#include "server/access.h"

#include <openssl/crypto.h>

#include <algorithm>

#include "base/sha256.h"
#include "server/service.h"

namespace lockstep::server {
namespace {

std::array<std::uint8_t, 32> digest_of(std::string_view text) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text.data(), text.size())));
  return hash.digest();
}

bool printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

}  // namespace

ApiKey::ApiKey(std::string_view key) : required_(!key.empty()) {
  if (required_) digest_ = digest_of(key);
}

bool ApiKey::admits(const http::Request& request) const {
  if (!required_) return true;
  std::string_view given;
  if (const auto* header = request.header("authorization")) {
    const std::string_view value = http::trim(*header);
    constexpr std::string_view kScheme = "bearer ";
    if (value.size() > kScheme.size() && http::to_lower(value.substr(0, kScheme.size())) == kScheme) given = http::trim(value.substr(kScheme.size()));
  }
  if (given.empty()) {
    if (const auto* header = request.header("x-api-key")) given = http::trim(*header);
  }
  const auto digest = digest_of(given);
  return CRYPTO_memcmp(digest.data(), digest_.data(), digest_.size()) == 0;
}

Result<Cors> Cors::parse(std::string_view origins) {
  Cors cors;
  while (!origins.empty()) {
    const auto comma = origins.find(',');
    const std::string_view origin = http::trim(origins.substr(0, comma));
    origins = comma == std::string_view::npos ? std::string_view() : origins.substr(comma + 1);
    if (origin == "*") {
      cors.any_ = true;
    } else if (origin.empty() || !printable(origin)) {
      return Error{ErrorCode::kInvalidArgument, "the CORS origin \"" + log_text(origin) + "\" is not an origin such as https://example.org", "cors_origin"};
    } else {
      cors.origins_.emplace_back(origin);
    }
  }
  return cors;
}

std::string Cors::headers(const http::Request& request) const {
  if (any_) return "Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: x-request-id\r\n";
  if (origins_.empty()) return {};
  const auto* origin = request.header("origin");
  if (!origin || std::find(origins_.begin(), origins_.end(), *origin) == origins_.end()) return "Vary: Origin\r\n";
  return "Access-Control-Allow-Origin: " + *origin + "\r\nAccess-Control-Expose-Headers: x-request-id\r\nVary: Origin\r\n";
}

std::string Cors::preflight_headers(const http::Request& request) const {
  if (!any_ && origins_.empty()) return {};
  std::string wanted = "authorization, content-type, x-api-key, x-request-id";
  if (const auto* asked = request.header("access-control-request-headers")) {
    const bool sane = asked->size() <= 2048 && std::all_of(asked->begin(), asked->end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == ',' || c == ' ';
    });
    if (sane && !asked->empty()) wanted = *asked;
  }
  return "Access-Control-Allow-Methods: GET, POST, DELETE, OPTIONS\r\nAccess-Control-Allow-Headers: " + wanted + "\r\nAccess-Control-Max-Age: 600\r\n";
}

std::string request_id_for(const http::Request& request) {
  if (const auto* given = request.header("x-request-id")) {
    if (!given->empty() && given->size() <= 128 && printable(*given)) return *given;
  }
  return random_id("req-");
}

bool is_loopback(std::string_view host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

}  // namespace lockstep::server
