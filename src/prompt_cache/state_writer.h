// Writes kept states to disk on a thread of its own, from a bounded queue. A snapshot's last reference is dropped on the engine thread alone (how many
// share a page decides there whether it is copied): the writer hands every job back.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "prompt_cache/cache_folder.h"
#include "prompt_cache/state_file.h"
#include "state/sequence_state.h"

namespace lockstep::prompt_cache {

struct WriterOptions {
  std::size_t most_jobs = 64, most_bytes = std::size_t(1) << 30;  // queued; a larger one is taken where nothing else waits
  std::chrono::milliseconds at_end{5000};                         // for what is queued when the server stops
  std::function<void()> before_file;                              // for tests: called on the writer's thread before every file
};

struct WriteJob {
  Key key;
  Names names;
  std::shared_ptr<const state::Snapshot> snapshot;
  std::size_t bytes = 0;  // of files that are not there yet
  Status written = Error{ErrorCode::kCancelled, "not written", ""};
};

/// All calls from one thread, the engine's.
class StateWriter {
 public:
  /// `page_bytes` of a buffer are held by the caller's reservation.
  StateWriter(const CacheFolder& folder, kernels::Backend& backend, WriterOptions options);
  /// Writes what is queued, for at most at_end.
  ~StateWriter();
  StateWriter(const StateWriter&) = delete;

  bool has_room(std::size_t bytes) const;
  void push(WriteJob job);
  /// Jobs that ended since, well or not.
  std::vector<WriteJob> take_done();
  /// Gives up the queued job that holds this snapshot.
  void forget(const state::Snapshot& snapshot);
  /// Gives up every job and waits for the one in hand; they are done then.
  void give_up();

 private:
  void run();
  Status write(const WriteJob& job);
  std::span<const std::byte> standing(const state::PageRef& page, int tokens);
  void drop_queue();  // under the mutex

  const CacheFolder& folder_;
  kernels::Backend& backend_;
  WriterOptions options_;
  std::vector<std::byte> page_;  // the writer's
  mutable std::mutex mutex_;     // guards what follows
  std::condition_variable wake_, ended_;
  std::deque<WriteJob> queue_;
  std::vector<WriteJob> done_;
  std::size_t queued_bytes_ = 0;
  bool writing_ = false, stopping_ = false;
  std::atomic<bool> give_up_{false};
  std::thread thread_;
};

}  // namespace lockstep::prompt_cache
