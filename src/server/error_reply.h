// Every way a request can fail, in one table: HTTP status, type and code of the API's error object.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http/message.h"

namespace lockstep::server {

enum class Failure {
  kInvalidRequest,     // a field or the JSON is malformed
  kUnsupported,        // well-formed, but nothing here does it
  kContextLength,      // prompt longer than the context
  kDoesNotFit,         // can never run here: memory
  kBadHttp,            // not HTTP/1.0 or 1.1
  kNoKey,
  kNoRoute,
  kNoModel,
  kNoRequest,          // no live request of this id
  kMethod,
  kReadTimeout,
  kBodyTooLarge,
  kMediaType,
  kExpectation,
  kHeadersTooLarge,
  kCancelled,          // DELETE /v1/requests/{id}
  kNotFinite,          // the model's arithmetic overflowed in this reply
  kInternal,
  kOverloaded,         // a bounded queue is full
  kStopping,           // the server drains
  kTooManyConnections,
};

struct FailureRow {
  Failure failure;
  int status;
  std::string_view type;
  std::string_view code;
  std::string_view meaning;  // for the docs
};

/// The table, in the order of the enum.
std::span<const FailureRow> failure_table();
const FailureRow& failure_row(Failure failure);

/// What an engine's or a parser's error is on the wire.
Failure failure_of(ErrorCode code);

/// {"error":{"message","type","param","code"}}; an empty param is null. `request_id` non-empty adds "request_id".
std::string error_json(Failure failure, std::string_view message, std::string_view param, std::string_view request_id);

/// The whole reply; 503 carries Retry-After, 401 WWW-Authenticate.
http::Response error_response(Failure failure, std::string_view message, std::string_view param, std::string_view request_id);
http::Response error_response(const Error& error, std::string_view request_id);

}  // namespace lockstep::server
