// One choice of a request on its way through the engine: queued, waiting for another lane's prefix, filling, decoding. A lane is its tokens; its
// state is only how far they were computed, and can be dropped and recomputed at any moment with equal bits.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lanes/request.h"
#include "state/sequence_state.h"

namespace lockstep::lanes {

using Clock = std::chrono::steady_clock;

/// What the choices of one request share.
struct Group {
  Request request;
  EventSink sink;
  std::uint64_t handle = 0, order = 0;  // order: arrival, background after all normal ones
  std::shared_ptr<const state::Snapshot> prompt;  // state one row before the prompt's end, held until the last choice has started
  int to_start = 0;                     // choices that have not started
};

struct Lane {
  std::shared_ptr<Group> group;
  int choice = 0;
  std::uint64_t seed = 0;
  std::vector<std::int32_t> tokens;  // prompt, then reply
  text::ReplyText text;
  std::unique_ptr<state::SequenceState> state;  // nullptr: queued, or stopped to be recomputed
  std::vector<std::int64_t> resume_points;      // still ahead, ascending: the state is kept there
  bool started = false;                         // has had a state; cached_tokens is final
  bool cancelled = false;
  std::int64_t cached_tokens = 0;
  Clock::time_point submitted, start, first_token;
  double forward_ms = 0;

  Lane(std::shared_ptr<Group> g, int c, text::ReplyText t)
      : group(std::move(g)), choice(c), seed(sampling::choice_seed(group->request.sampling.seed, c)), tokens(group->request.prompt_ids),
        text(std::move(t)), submitted(Clock::now()) {}

  const Request& request() const { return group->request; }
  std::int64_t prompt_length() const { return std::int64_t(request().prompt_ids.size()); }
  std::int64_t reply_length() const { return std::int64_t(tokens.size()) - prompt_length(); }
  /// Tokens whose rows are not computed yet; 1: decoding.
  std::int64_t pending() const { return std::int64_t(tokens.size()) - (state ? state->length() : 0); }
  std::span<const std::int32_t> reply() const { return std::span(tokens).subspan(std::size_t(prompt_length())); }
};

}  // namespace lockstep::lanes
