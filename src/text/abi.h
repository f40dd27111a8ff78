// C++ side of lockstep_text.h: views in, owned values out, codes to errors. Private to this layer.
#pragma once
#include <lockstep_text.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep::text {

inline lockstep_text_view view(std::string_view s) { return {reinterpret_cast<const std::uint8_t*>(s.data()), s.size()}; }

inline std::string take(lockstep_text_bytes bytes) {
  std::string s(reinterpret_cast<const char*>(bytes.data), bytes.size);
  lockstep_text_bytes_free(bytes);
  return s;
}

/// The error of a call that returned `code`: `prefix` and its message.
inline Error take_error(int code, lockstep_text_bytes message, std::string_view prefix, std::string subject) {
  ErrorCode kind = ErrorCode::kInternal;
  switch (code) {
    case LOCKSTEP_TEXT_CORRUPT:
      kind = ErrorCode::kCorruptFile;
      break;
    case LOCKSTEP_TEXT_UNSUPPORTED:
      kind = ErrorCode::kUnsupported;
      break;
    case LOCKSTEP_TEXT_INVALID:
    case LOCKSTEP_TEXT_RAISED:
    case LOCKSTEP_TEXT_RENDER:
    case LOCKSTEP_TEXT_LIMIT:
      kind = ErrorCode::kInvalidArgument;
      break;
    case LOCKSTEP_TEXT_ABSENT:
      kind = ErrorCode::kNotFound;
      break;
    default:
      break;
  }
  return Error{kind, std::string(prefix) + take(message), std::move(subject)};
}

}  // namespace lockstep::text
