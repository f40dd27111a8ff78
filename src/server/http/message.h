// One HTTP request as read, one response as written.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::server::http {

struct Header {
  std::string name, value;
};

struct Request {
  std::string method;   // as sent; methods are case-sensitive
  std::string path;     // without the query, not decoded
  std::string query;
  int version = 11;     // 10 or 11
  bool keep_alive = true;
  bool has_body = false;  // a length above 0, or chunked
  bool chunked = false;
  std::uint64_t content_length = 0;
  std::vector<Header> headers;  // names in lower case, in order
  std::string body;
  std::string id;  // x-request-id, the client's or made

  /// Value of the first header of this lower-case name; nullptr if there is none.
  const std::string* header(std::string_view lower_name) const;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";  // empty: no Content-Type
  std::vector<Header> headers;
  std::string body;
  bool close = false;  // the connection does not go on after it
};

std::string_view reason_phrase(int status);

/// Status line and header fields with the empty line. `framing` is the complete Content-Length or Transfer-Encoding field line ("" for
/// neither), `common` further complete field lines.
std::string response_head(const Response& response, std::string_view framing, std::string_view common, bool keep_alive);

/// %XX decoded; nullopt for a broken escape.
std::optional<std::string> percent_decode(std::string_view text);

std::string to_lower(std::string_view ascii);
std::string_view trim(std::string_view text);  // spaces and tabs

}  // namespace lockstep::server::http
