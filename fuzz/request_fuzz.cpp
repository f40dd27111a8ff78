// Bytes of a client: the first one chooses. Even: an HTTP request, cut where the next two bytes say. Odd: a body, through the JSON reader, the table of
// request fields and the messages. Whatever comes out as an error must be a reply that parses.
#include <boost/json/parse.hpp>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/error_reply.h"
#include "server/http/request_parser.h"
#include "server/json_input.h"
#include "server/openai/messages.h"
#include "server/openai/request_fields.h"

namespace {

using namespace lockstep::server;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_error(Failure failure, const std::string& message, const std::string& param) {
  boost::json::error_code ec;
  const auto reply = boost::json::parse(error_json(failure, message, param, "id"), ec);
  require(!ec && !message.empty());
  const int status = failure_row(failure).status;
  require(status >= 400 && status < 500);
}

void read_http(std::string_view bytes, std::size_t first_cut) {
  Limits limits;
  limits.header_bytes = 1024;
  limits.body_bytes = 512;
  http::RequestParser parser(limits);
  using State = http::RequestParser::State;
  std::string buffer(bytes.substr(0, first_cut));
  bool rest = true;
  while (parser.state() != State::kDone && parser.state() != State::kFailed) {
    const auto before = parser.state();
    const std::size_t taken = parser.feed(buffer);
    require(taken <= buffer.size() && parser.body_bytes() <= limits.body_bytes + bytes.size());
    buffer.erase(0, taken);
    if (parser.state() != before) continue;
    if (!rest) return;
    buffer += bytes.substr(std::min(first_cut, bytes.size()));
    rest = false;
  }
  if (parser.state() == State::kFailed) check_error(parser.problem().failure, parser.problem().message, "");
  else require(parser.request().body.size() <= limits.body_bytes);
}

void read_body(std::string_view text) {
  BoundedMemory memory(1 << 20);
  try {
    auto value = parse_json(text, "the request body", 64, memory);
    if (!value.ok()) return check_error(failure_of(value.error().code), value.error().message, value.error().subject);
    const auto* object = value->if_object();
    if (!object) return;
    for (const auto route : {openai::kChat, openai::kCompletions}) {
      const auto fields = openai::read_request_fields(*object, route);
      if (!fields.ok()) {
        require(!fields.error().subject.empty());
        check_error(failure_of(fields.error().code), fields.error().message, fields.error().subject);
      } else if (route == openai::kChat) {
        openai::MessageOptions options;
        options.split_thinking = text.size() % 2;
        const auto messages = openai::read_messages(*fields->messages, options, [](std::string_view s) { return std::string(s); }, memory);
        if (messages.ok()) continue;
        require(messages.error().subject.starts_with("messages"));
        check_error(failure_of(messages.error().code), messages.error().message, messages.error().subject);
      }
    }
  } catch (const std::bad_alloc&) {  // `memory` is spent: 413
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (size < 3) return 0;
  if (data[0] % 2) read_body(bytes.substr(1));
  else read_http(bytes.substr(3), data[1] + 256u * data[2]);
  return 0;
}
