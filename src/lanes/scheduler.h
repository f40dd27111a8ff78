// Who runs: admission in arrival order, background after all normal, one forward a round over all running lanes, stopping and recomputing
// under a budget. Engine thread only. What load changes here is speed, never bits.
#pragma once
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "lanes/lane.h"
#include "lanes/request.h"
#include "lanes/stats.h"
#include "models/model.h"
#include "prompt_cache/prompt_cache.h"
#include "sampling/sampler.h"

namespace lockstep::lanes {

struct SchedulerOptions {
  int parallel = 1;                     // lanes
  std::size_t prompt_cache_bytes = 0;   // 0: off
  std::vector<std::int32_t> stop_ids;
  std::int64_t vocabulary = 0;          // ids a draw may give: the tokenizer's largest plus one
  std::shared_ptr<const text::Tokenizer> tokenizer;
};

class Scheduler {
 public:
  /// disk: kept states on disk, or nullptr.
  Scheduler(models::Model& model, state::Store& store, SchedulerOptions options, std::unique_ptr<prompt_cache::DiskTier> disk = nullptr);

  /// Takes a request (checked by the engine) into the queue.
  void add(std::uint64_t handle, Request request, EventSink sink);
  /// Ends a request's live choices; their sinks get kCancelled. False if the handle is not live.
  bool cancel(std::uint64_t handle);

  bool idle() const { return queue_.empty() && running_.empty(); }
  /// One round; needs !idle().
  void step();
  SchedulerStats stats() const;

 private:
  static constexpr std::int64_t kReplyStep = 256;  // tokens of pages a reply takes at its start, and again as it grows

  using Lanes = std::list<std::unique_ptr<Lane>>;  // by Group::order
  struct Row {  // a lane's part in this round
    Lane* lane;
    int rows;
    bool draws;
  };

  // round.cpp, in this order
  void plan();
  int rows_within(double milliseconds, std::int64_t position) const;
  void forward();
  void draw();
  void accept();
  void keep();
  void accept_token(Lane& lane, std::int32_t token);
  void finish(Lane& lane, FinishReason reason, Event event, Error error = {});
  void observe(double milliseconds);

  // scheduler.cpp
  void set_resume_points(Lane& lane);
  void admit();
  bool start(Lane& lane, std::int64_t cached);
  std::size_t bytes_to_start(const Lane& lane) const;
  static Lanes::iterator place(Lanes& lanes, const Lane& lane);
  Lane* background_beside(const Lane& lane);
  bool waits(const Lane& lane, std::int64_t cached);
  void leave(Lane& lane);
  bool shed_to_start();
  bool reserve(Lane& lane, std::int64_t rows);
  bool drop_prompt(std::uint64_t order);
  void stop(Lane& lane);
  Lane* newest_running(const Lane* but);
  std::shared_ptr<const state::Snapshot> save(Lane& lane);
  void keep_state(Lane& lane);
  void remove_ended();

  models::Model& model_;
  state::Store& store_;
  SchedulerOptions options_;
  prompt_cache::PromptCache cache_;
  Lanes queue_, running_;
  std::vector<Row> round_;
  std::vector<models::Segment> segments_;
  std::vector<std::int32_t> drawn_;
  std::vector<std::unique_ptr<sampling::Sampler>> samplers_;  // one a thread
  std::vector<std::unique_ptr<Lane>> ended_;                   // of this round; freed at its end
  std::uint64_t order_ = 0;
  double operation_ms_ = 0, decode_ms_ = 0;  // measured: an operation of filled rows, 0 before the first; a round that only decodes
  SchedulerStats stats_;
};

}  // namespace lockstep::lanes
