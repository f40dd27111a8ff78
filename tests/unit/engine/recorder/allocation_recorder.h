// Counts what operator new gives while a ledger is watched: blocks (4 KiB and more: states, pages, snapshots) against the bytes the ledger
// holds, at every allocation and every release of one; smaller pieces apart. In this program only: its operator new and mmap are replaced.
#pragma once
#include <cstdint>

#include "memory/ledger.h"

namespace lockstep::testing {

inline constexpr std::size_t kBlock = 4096;

struct Recorded {
  std::int64_t blocks = 0, peak_blocks = 0;  // bytes live, most bytes live
  std::int64_t small = 0, peak_small = 0;
  std::int64_t over = 0;                     // most bytes by which live blocks were above what the ledger held; 0: never
  std::int64_t mappings = 0;                 // anonymous mappings made other than by malloc
};

/// Counts from zero against this ledger; what was allocated before does not count, also when it is freed.
void record(const memory::Ledger& ledger);
Recorded recorded();
/// Ends the recording.
Recorded stop_recording();

}  // namespace lockstep::testing
