// Reads one HTTP/1 request from bytes, however they are cut. No socket here, so that it is tested and fuzzed alone.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/error_reply.h"
#include "server/http/message.h"
#include "server/limits.h"

namespace lockstep::server::http {

class RequestParser {
 public:
  explicit RequestParser(const Limits& limits);
  ~RequestParser();

  enum class State { kHeader, kBody, kDone, kFailed };

  /// Takes what it can use from the front of `bytes` and returns how much that was. Stops after the header, so that it can be looked at
  /// before the body is read (state kBody, or kDone without one), and after the body. In kHeader, what is not taken must be given again
  /// with more behind it. A chunk header or trailer must fit `limits.header_bytes`.
  std::size_t feed(std::string_view bytes);

  State state() const { return state_; }
  /// The header's fields from kBody on, the body in kDone. In kFailed: whatever was read.
  Request& request() { return request_; }
  /// Bytes of body so far.
  std::size_t body_bytes() const;

  struct Problem {
    Failure failure;
    std::string message;
  };
  const Problem& problem() const { return problem_; }  // in kFailed

 private:
  struct Beast;
  void header_done();
  void fail(Failure failure, std::string message);

  const Limits& limits_;
  std::unique_ptr<Beast> beast_;
  State state_ = State::kHeader;
  Request request_;
  Problem problem_{Failure::kBadHttp, {}};
};

}  // namespace lockstep::server::http
