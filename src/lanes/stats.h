// Counters of the scheduler, since start but for the live ones.
#pragma once
#include <cstdint>

#include "prompt_cache/prompt_cache.h"

namespace lockstep::lanes {

struct SchedulerStats {
  std::int64_t queued = 0, filling = 0, decoding = 0;
  std::int64_t requests = 0, prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  std::int64_t rounds = 0, rows = 0, decode_rows = 0, widest_round = 0;  // widest: most streams in one forward
  std::int64_t shared_rounds = 0;                                     // of more than one stream
  std::int64_t stopped = 0, recomputed = 0, cancelled = 0, failed = 0;
  double forward_seconds = 0;
  prompt_cache::Stats cache;
};

}  // namespace lockstep::lanes
