#include "text/text_stream.h"

#include <cstddef>
#include <cstdint>

namespace lockstep::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Piece {
  std::size_t bytes;  // of a character, or of the longest beginning of one
  bool whole;
  bool may_go_on;  // not whole only because the text ends
};

/// The piece at the start of `s`, which is not empty (Unicode, table 3-7: the second byte's range depends on the first).
Piece first_piece(std::string_view s) {
  const auto at = [&](std::size_t i) { return std::uint8_t(s[i]); };
  const std::uint8_t lead = at(0);
  if (lead < 0x80) return {1, true, false};
  const std::size_t length = lead >= 0xC2 && lead <= 0xDF ? 2 : lead >= 0xE0 && lead <= 0xEF ? 3 : lead >= 0xF0 && lead <= 0xF4 ? 4 : 0;
  if (length == 0) return {1, false, false};
  std::uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  std::uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < length; i++) {
    if (i == s.size()) return {i, false, true};
    if (at(i) < low || at(i) > high) return {i, false, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true, false};
}

}  // namespace

std::string TextStream::push(std::string_view bytes) {
  std::string joined;
  if (!pending_.empty()) {
    joined = std::move(pending_);
    pending_.clear();
    joined += bytes;
    bytes = joined;
  }
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const Piece piece = first_piece(bytes);
    if (piece.may_go_on) {
      pending_ = bytes;
      break;
    }
    out += piece.whole ? bytes.substr(0, piece.bytes) : kReplacement;
    bytes.remove_prefix(piece.bytes);
  }
  return out;
}

std::string TextStream::finish() {
  const bool incomplete = !pending_.empty();
  pending_.clear();
  return incomplete ? std::string(kReplacement) : std::string();
}

std::string replace_invalid(std::string_view bytes) {
  TextStream stream;
  std::string out = stream.push(bytes);
  return out += stream.finish();
}

}  // namespace lockstep::text
