// Bytes that arrive in any pieces to valid UTF-8: only whole characters leave; what is no UTF-8 becomes U+FFFD, one for each
// longest beginning of a character (as Python's errors="replace" and Rust's from_utf8_lossy).
#pragma once
#include <string>
#include <string_view>

namespace lockstep::text {

class TextStream {
 public:
  /// Whole characters of everything so far that did not leave before. At most 3 bytes stay behind.
  std::string push(std::string_view bytes);
  /// The beginning of a character that stayed behind, as U+FFFD; else empty.
  std::string finish();

 private:
  std::string pending_;
};

/// All of `bytes` at once.
std::string replace_invalid(std::string_view bytes);

}  // namespace lockstep::text
