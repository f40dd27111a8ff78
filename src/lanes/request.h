// What the server asks of the engine and what it gets back: plain values that cross between threads.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sampling/sampler.h"
#include "text/reply_text.h"

namespace lockstep::lanes {

enum class Priority { kNormal, kBackground };

struct Request {
  std::string id;                        // x-request-id
  std::vector<std::int32_t> prompt_ids;  // not empty
  sampling::SamplingParams sampling;     // seed already resolved
  std::int64_t max_tokens = 0;           // >= 1, already cut to what is left of the context
  bool ignore_eos = false;               // stop ids do not end the reply
  text::ReplyTextOptions text;
  Priority priority = Priority::kNormal;
  std::string cache_salt;
  std::vector<std::int64_t> resume_points;  // prompt lengths a follow-up may share (before the generation prompt, around the last turn)
  int choices = 1;                          // n: choice i draws with sampling::choice_seed(seed, i); events name their choice
};

enum class FinishReason { kStop, kLength, kCancelled, kError };

struct Usage {
  std::int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
};

struct Timings {
  double queued_ms = 0, prefill_ms = 0, decode_ms = 0;
  double forward_ms = 0;  // inside forwards, of queued..end
};

struct Finish {
  FinishReason reason = FinishReason::kStop;
  Error error;               // reason kError
  std::string stop;          // stop string that matched, if one did
  Usage usage;
  std::string token_sha256;  // over the reply's ids
  std::uint64_t seed = 0;    // this choice's
  Timings timings;
};

/// Some tokens of a reply and the text they completed. Concatenated over a reply: all ids (stop id included), all text.
struct Event {
  int choice = 0;
  std::vector<std::int32_t> token_ids;
  std::string reasoning, content;
  std::optional<Finish> finish;  // set in the last event of a choice, exactly once each
};

/// Called on the engine thread in order; must not block or throw. After the last choice's event with `finish` it is not called again.
using EventSink = std::function<void(Event&&)>;

}  // namespace lockstep::lanes
