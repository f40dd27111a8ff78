// The engine: owns models, states and the one thread that touches them. submit and cancel may be called from any thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/request.h"
#include "kernels/isa.h"
#include "lanes/stats.h"
#include "memory/ledger.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lockstep::engine {

struct EngineOptions {
  std::filesystem::path folder;
  std::int64_t context = 0;   // tokens; 0: the smaller of the model's limit and 32,768
  int threads = 0;            // 0: all cores
  std::optional<kernels::Isa> isa;  // forced instruction set; none: the best
  std::size_t max_queue = 256;      // requests waiting; one more is kOverloaded
  int parallel = 1;                 // lanes; 0: as many as memory holds at 2,048 tokens each, at most 16
  int max_rows = 512;               // prompt rows of one forward, at most
  std::size_t memory_bytes = 0;     // budget of the ledger; 0: measured
  std::optional<std::size_t> prompt_cache_bytes;  // 0: off; none: half of the budget
  std::filesystem::path prompt_cache_dir;         // kept states on disk; empty: none
  std::size_t prompt_cache_disk_bytes = std::size_t(16) << 30;
  std::function<void(double fraction, const std::string& what)> progress;  // loading; may be empty
};

/// What a server needs to know of the model it serves.
struct ModelInfo {
  std::string name;             // folder name
  std::string family;           // "qwen3_5", "llama", "qwen3"
  std::int64_t context = 0;     // tokens a request may have, prompt and reply
  std::int64_t model_limit = 0;  // max_position_embeddings
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;  // nullptr: the folder has none
  std::vector<std::int32_t> stop_ids;                       // union of config, generation_config and tokenizer
  std::optional<std::int32_t> think_start, think_end;
  sampling::SamplingParams default_sampling;  // generation_config.json
  std::size_t weight_bytes = 0;
  std::string isa;
  int threads = 0, parallel = 0;
};

struct EngineStats : lanes::SchedulerStats {
  memory::LedgerView memory;
};

class Engine {
 public:
  /// Loads the checkpoint and starts the engine thread. Every error names the file, key or tensor.
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options);
  /// Cancels every live request (their sinks get kCancelled) and joins.
  ~Engine();

  const ModelInfo& info() const;

  /// Queues a request; returns its handle, never 0. kOverloaded when the queue is full, kDoesNotFit / kContextLengthExceeded when it
  /// can never run. Nothing of an accepted request is lost: its sink gets exactly one finish.
  Result<std::uint64_t> submit(Request request, EventSink sink);
  /// Ends a live request within one step; its sink gets kCancelled. No-op for handles that have ended.
  void cancel(std::uint64_t handle);
  /// Live handles of a request id.
  std::vector<std::uint64_t> live(const std::string& request_id) const;

  EngineStats stats() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::engine
