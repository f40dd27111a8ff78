// docs/api.md, printed from the tables that serve requests, so that the page cannot differ from them.
#include <fmt/format.h>

#include "server/error_reply.h"
#include "server/limits.h"
#include "server/openai/request_fields.h"
#include "server/routes.h"
#include "server/server.h"

namespace lockstep::server {
namespace {

constexpr std::string_view kHead = R"(# HTTP API

Printed by `lockstep::server::fields_markdown()` from the tables that serve requests; a test holds this file against it.

Any OpenAI client works: set its base URL to `http://HOST:PORT/v1`. Replies, streams and errors have the form of OpenAI's API; what is added
is named under [Replies](#replies).

## Routes

| method | path | key | what |
|---|---|---|---|
)";

constexpr std::string_view kAfterRoutes = R"(
HEAD works where GET does, OPTIONS everywhere; another method of a known path is 405 with `Allow`. Bodies are JSON objects in UTF-8, sent as
`Content-Type: application/json` (a missing type is taken where no `Origin` header came with it, so that a page of another site cannot post).
Keep-alive, pipelining, chunked bodies and `Expect: 100-continue` work. HTTP/1.0 and 1.1 only; TLS and HTTP/2 are a reverse proxy's job.

Every reply carries `x-request-id`: the client's own, if it has 1 to 128 printable ASCII characters without a space, else a new one. It stands in
the log and in errors, and `DELETE /v1/requests/{id}` takes it.

## Messages

- `content` is a string, null or absent (both are the empty text), or an array of parts. Text parts (`text`, `input_text`, `output_text`,
  `refusal`) are joined without anything between them; any other part (images, audio, files) is refused by its type.
- `developer` is `system`. Roles and orders that the model's template does not know are answered 400 with the template's own words.
- `tool_calls[].function.arguments` may be an object or a JSON object in a string (an empty one is `{}`); a string that is neither is refused as
  `messages[i].tool_calls[j].function.arguments`. A legacy `function_call` is one tool call.
- `reasoning_content` goes to the template as it is, and `reasoning` under that name. An assistant's text that still holds a closed think block
  is split as templates do it: what stands in the block is reasoning, what follows it the text.
- Text never becomes a control token: the spelling of one inside a message (names, arguments and template variables too) is encoded as ordinary
  text. A raw `/v1/completions` prompt is taken as given.

## Request fields

null is the same as leaving a field out. A field marked *neutral only* is accepted where its value asks for nothing, and otherwise refused by
name: nothing is dropped in silence that a reply could show. Fields that are in no table are ignored, and logged once.

| field | routes | type and range | |
|---|---|---|---|
)";

constexpr std::string_view kReplies = R"(
A prompt that leaves no room for a token is refused (`context_length_exceeded`, with the counts); a `max_tokens` above what is left is cut to it.

`POST /tokenize` takes `prompt` (with `add_special_tokens`) or `messages` (with the chat route's template fields) and `return_token_strs`, and
answers `count`, `max_model_len`, `tokens` and `token_strs`. `POST /detokenize` takes `tokens` and `skip_special_tokens` and answers `prompt`.

## Replies

- `usage` always has `prompt_tokens_details.cached_tokens` and `completion_tokens_details.reasoning_tokens` (tokens inside the think block).
- `choices[].message.reasoning_content` (`delta.reasoning_content` in a stream) is the text of the think block, in every case: also when the
  reply ends inside it.
- `lockstep`, in a stream in the chunk with `finish_reason`: `token_sha256` (SHA-256 in hex over the reply's ids as little-endian 32-bit numbers: the
  same for the same request however it was served), `seed` (decimal string), `stop` (the stop string that matched), `timings` in milliseconds. With
  `n` above 1 each choice has its own.
- With `return_token_ids`: `prompt_token_ids`, and `choices[].token_ids` with the stop id and every token up to the one that completed a stop
  string, nothing after; `completion_tokens` is their count.
- A stream begins with a chunk that gives the role, then text, then a chunk with `finish_reason`, with `stream_options.include_usage` a chunk
  with `usage` and no choices, then `[DONE]`. Every delta is valid UTF-8. While nothing comes for {silence} s, a comment line keeps the connection
  open. Every error of a request comes before a stream opens, with its status; a failure inside a stream ends it with an event
  `{{"error": {{...}}}}` and no `[DONE]`.

## Errors

`{{"error": {{"message", "type", "param", "code", "request_id"}}}}`

| status | code | type | when |
|---|---|---|---|
)";

constexpr std::string_view kLimits = R"(
503 carries `Retry-After` in seconds.

## Limits

| what | limit | above it |
|---|---|---|
| request line and header | {header} KiB | 431 |
| body, after chunked decoding | {body} MiB | 413 |
| depth of the JSON | {depth} | 400 |
| memory of one parsed body | {json} MiB | 413 |
| connections | {connections} | the longest idle one is closed; 503 if none is idle |
| bodies held at once, of those above {small} KiB | {bodies} MiB | 503 |
| requests that wait for the engine | `--max-queue` | 503 |
| from a connection's or request's first byte to the end of its header | {header_time} s | 408 |
| between two bytes of a body; the whole body | {progress} s; {body_time} s | 408 |
| keep-alive between two requests | {idle} s | closed |
| between two bytes that a client takes | {write} s | its reply is cancelled |
| stream events that wait for a slow reader | {outgoing} MiB | its reply is cancelled |

## Clients that leave

A reply stops within one step when its client leaves, whether it is queued, reading its prompt or decoding, streamed or not. A client that closes
its sending side has left: one that still wants its reply keeps its connection open in both directions. A peer that vanishes without a word is
noticed by TCP keep-alive within about a minute.

## Keys, other machines, other origins

With `--api-key` every route but /health wants `Authorization: Bearer KEY` or `x-api-key: KEY`; keys are compared as digests in constant time. A host
that other machines can reach without a key is warned about at start. `--cors-origin` (`*`, or origins separated by commas) lets web pages in.

## Signals

The first SIGTERM or SIGINT closes the port and refuses new work (503); live replies have 30 s to finish, then they are cancelled with an error. A second
signal exits at once.
)";

std::string routes_of(unsigned routes) {
  if (routes == openai::kBoth) return "both";
  return routes == openai::kChat ? "chat" : "completions";
}
std::string row_type(const openai::Field& field) {
  if (field.treatment == openai::Treatment::kNeutralOnly) return fmt::format("*neutral only:* {}", field.type);
  if (field.treatment == openai::Treatment::kIgnored) return fmt::format("*ignored:* {}", field.type);
  return std::string(field.type);
}

}  // namespace

std::string fields_markdown() {
  const Limits limits;
  const auto seconds = [](std::chrono::milliseconds time) { return time.count() / 1000; };
  std::string out(kHead);
  for (const Route& route : route_table())
    out += fmt::format("| {} | `{}` | {} | {} |\n", route.method, route.path, route.needs_key ? "yes" : "no", route.meaning);
  out += kAfterRoutes;
  for (const openai::Field& field : openai::request_field_table()) {
    out += fmt::format("| `{}` | {} | {} | {} |\n", field.name, routes_of(field.routes), row_type(field), field.meaning);
  }
  out += fmt::format(kReplies, fmt::arg("silence", seconds(limits.stream_silence_time)));
  for (const FailureRow& row : failure_table()) out += fmt::format("| {} | `{}` | `{}` | {} |\n", row.status, row.code, row.type, row.meaning);
  out += fmt::format(kLimits, fmt::arg("header", limits.header_bytes >> 10), fmt::arg("body", limits.body_bytes >> 20), fmt::arg("depth", limits.json_depth),
                     fmt::arg("json", limits.json_memory_bytes >> 20), fmt::arg("connections", limits.connections),
                     fmt::arg("small", limits.small_body_bytes >> 10), fmt::arg("bodies", limits.all_bodies_bytes >> 20),
                     fmt::arg("header_time", seconds(limits.header_time)), fmt::arg("progress", seconds(limits.body_progress_time)),
                     fmt::arg("body_time", seconds(limits.body_time)), fmt::arg("idle", seconds(limits.idle_time)),
                     fmt::arg("write", seconds(limits.write_progress_time)), fmt::arg("outgoing", limits.outgoing_bytes >> 20));
  return out;
}

}  // namespace lockstep::server
