// Server-sent events: "data: ...\n\n" frames and comment lines (WHATWG HTML 9.2).
#pragma once
#include <string>
#include <string_view>

namespace lockstep::server {

/// One event. `json` holds no line break (JsonText escapes them).
inline void append_event(std::string& out, std::string_view json) {
  out += "data: ";
  out += json;
  out += "\n\n";
}
/// The end of a stream that went well.
inline constexpr std::string_view kStreamDone = "data: [DONE]\n\n";
/// Keeps proxies from closing a silent stream; clients skip it.
inline constexpr std::string_view kStreamComment = ": waiting\n\n";

}  // namespace lockstep::server
