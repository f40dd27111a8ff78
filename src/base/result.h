// Result<T>: a value, or an Error with a code, words for a person, and the field, tensor or file it is about.
// A client's or a file's mistake is a Result; our own mistake is a LOCKSTEP_CHECK (check.h).
#pragma once
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace lockstep {

enum class ErrorCode {
  kInvalidArgument,        // a request or a flag is malformed
  kNotFound,               // file, tensor or route that is not there
  kUnsupported,            // well-formed, but this build or kernel cannot do it (a named refusal)
  kCorruptFile,            // a file contradicts itself or its format
  kDoesNotFit,             // memory budget or context too small; the message has the numbers
  kContextLengthExceeded,  // prompt longer than the context
  kOverloaded,             // bounded queue is full
  kCancelled,
  kNotFinite,              // a value that is not finite stood in a reply's row (EXACTNESS item 9)
  kIo,
  kInternal,
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  // full sentence for a person, names the subject
  std::string subject;  // request field, tensor, config key or file; may be empty
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : v_(std::in_place_index<1>, std::move(error)) {}
  bool ok() const { return v_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { LOCKSTEP_CHECK(ok()); return std::get<0>(v_); }
  const T& value() const& { LOCKSTEP_CHECK(ok()); return std::get<0>(v_); }
  T&& value() && { LOCKSTEP_CHECK(ok()); return std::get<0>(std::move(v_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const { LOCKSTEP_CHECK(!ok()); return std::get<1>(v_); }

 private:
  std::variant<T, Error> v_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : e_(std::move(error)), ok_(false) {}
  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error& error() const { LOCKSTEP_CHECK(!ok_); return e_; }

 private:
  Error e_;
  bool ok_ = true;
};
using Status = Result<void>;

// Returns the error of a failed Result from the calling function.
#define LOCKSTEP_TRY(expr)                                  \
  do {                                                      \
    if (auto lockstep_status = (expr); !lockstep_status.ok()) return lockstep_status.error(); \
  } while (0)
#define LOCKSTEP_CONCAT2(a, b) a##b
#define LOCKSTEP_CONCAT(a, b) LOCKSTEP_CONCAT2(a, b)
// LOCKSTEP_ASSIGN(auto x, f()): x = value of f(), or return its error.
#define LOCKSTEP_ASSIGN(decl, expr) LOCKSTEP_ASSIGN_IMPL(LOCKSTEP_CONCAT(lockstep_result_, __LINE__), decl, expr)
#define LOCKSTEP_ASSIGN_IMPL(tmp, decl, expr) \
  auto tmp = (expr);                          \
  if (!tmp.ok()) return tmp.error();          \
  decl = std::move(tmp).value()

}  // namespace lockstep
