// Who may come in: the API key, and the web pages of other origins.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/http/message.h"

namespace lockstep::server {

class ApiKey {
 public:
  /// An empty key lets everyone in.
  explicit ApiKey(std::string_view key);
  bool required() const { return required_; }
  /// `Authorization: Bearer KEY` or `x-api-key: KEY`. Digests are compared, in constant time.
  bool admits(const http::Request& request) const;

 private:
  bool required_;
  std::array<std::uint8_t, 32> digest_{};
};

class Cors {
 public:
  /// Empty: no headers. "*", or origins separated by commas; kInvalidArgument for what cannot stand in a header.
  static Result<Cors> parse(std::string_view origins);
  /// Header lines for a reply to `request`; empty if its origin is not among them.
  std::string headers(const http::Request& request) const;
  /// The further lines of a preflight's reply.
  std::string preflight_headers(const http::Request& request) const;

 private:
  bool any_ = false;
  std::vector<std::string> origins_;
};

/// A client's x-request-id if it is sane (1 to 128 printable ASCII characters, no space), else a new one.
std::string request_id_for(const http::Request& request);

/// Whether only this machine can reach `host`.
bool is_loopback(std::string_view host);

}  // namespace lockstep::server
