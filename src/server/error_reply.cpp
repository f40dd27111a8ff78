#include "server/error_reply.h"

#include "server/json_text.h"

namespace lockstep::server {
namespace {

constexpr std::string_view kClient = "invalid_request_error";
constexpr std::string_view kServer = "server_error";

constexpr FailureRow kTable[] = {
    {Failure::kInvalidRequest, 400, kClient, "invalid_value", "the JSON or a field is malformed; `param` names the field"},
    {Failure::kUnsupported, 400, kClient, "unsupported_value", "well-formed, but not supported here; `param` names the field"},
    {Failure::kContextLength, 400, kClient, "context_length_exceeded", "the prompt leaves no room in the context; the message has the counts"},
    {Failure::kDoesNotFit, 400, kClient, "does_not_fit", "the request can never run in this server's memory; the message has the numbers"},
    {Failure::kBadHttp, 400, kClient, "bad_http", "not HTTP/1.0 or HTTP/1.1"},
    {Failure::kNoKey, 401, kClient, "invalid_api_key", "no API key, or a wrong one"},
    {Failure::kNoRoute, 404, kClient, "not_found", "no such route"},
    {Failure::kNoModel, 404, kClient, "model_not_found", "GET /v1/models/{id} of another model"},
    {Failure::kNoRequest, 404, kClient, "request_not_found", "DELETE of a request that is not live"},
    {Failure::kMethod, 405, kClient, "method_not_allowed", "the route has other methods; Allow lists them"},
    {Failure::kReadTimeout, 408, kClient, "request_timeout", "the request did not arrive in time"},
    {Failure::kBodyTooLarge, 413, kClient, "request_too_large", "the body is above its limit"},
    {Failure::kMediaType, 415, kClient, "unsupported_media_type", "the body is not application/json in UTF-8, or is compressed"},
    {Failure::kExpectation, 417, kClient, "expectation_failed", "an Expect header other than 100-continue"},
    {Failure::kHeadersTooLarge, 431, kClient, "headers_too_large", "the request's header is above its limit"},
    {Failure::kCancelled, 499, kClient, "request_cancelled", "the request was cancelled by DELETE /v1/requests/{id}"},
    {Failure::kNotFinite, 500, kServer, "not_finite", "a value of the model overflowed in this reply"},
    {Failure::kInternal, 500, kServer, "internal_error", "the server's own fault"},
    {Failure::kOverloaded, 503, kServer, "overloaded", "the queue is full; Retry-After says when to come back"},
    {Failure::kStopping, 503, kServer, "server_stopping", "the server is shutting down"},
    {Failure::kTooManyConnections, 503, kServer, "too_many_connections", "all connections are in use"},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < std::size(kTable); ++i) {
    if (static_cast<std::size_t>(kTable[i].failure) != i) return false;
  }
  return true;
}
static_assert(in_order() && static_cast<std::size_t>(Failure::kTooManyConnections) + 1 == std::size(kTable));

}  // namespace

std::span<const FailureRow> failure_table() { return kTable; }
const FailureRow& failure_row(Failure failure) { return kTable[static_cast<std::size_t>(failure)]; }

Failure failure_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return Failure::kInvalidRequest;
    case ErrorCode::kNotFound: return Failure::kInvalidRequest;
    case ErrorCode::kUnsupported: return Failure::kUnsupported;
    case ErrorCode::kDoesNotFit: return Failure::kDoesNotFit;
    case ErrorCode::kContextLengthExceeded: return Failure::kContextLength;
    case ErrorCode::kOverloaded: return Failure::kOverloaded;
    case ErrorCode::kCancelled: return Failure::kCancelled;
    case ErrorCode::kNotFinite: return Failure::kNotFinite;
    case ErrorCode::kCorruptFile:
    case ErrorCode::kIo:
    case ErrorCode::kInternal: return Failure::kInternal;
  }
  return Failure::kInternal;
}

std::string error_json(Failure failure, std::string_view message, std::string_view param, std::string_view request_id) {
  const FailureRow& row = failure_row(failure);
  std::string out;
  JsonText json(out);
  json.open_object().open_object("error").text("message", message).text("type", row.type);
  if (param.empty()) json.null("param");
  else json.text("param", param);
  json.text("code", row.code);
  if (!request_id.empty()) json.text("request_id", request_id);
  json.close_object().close_object();
  return out;
}

http::Response error_response(Failure failure, std::string_view message, std::string_view param, std::string_view request_id) {
  http::Response response;
  response.status = failure_row(failure).status;
  response.body = error_json(failure, message, param, request_id);
  if (response.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  if (response.status == 503) response.headers.push_back({"Retry-After", failure == Failure::kStopping ? "5" : "1"});
  return response;
}
http::Response error_response(const Error& error, std::string_view request_id) {
  return error_response(failure_of(error.code), error.message, error.subject, request_id);
}

}  // namespace lockstep::server
