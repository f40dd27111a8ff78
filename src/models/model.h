// A loaded model and its one forward over a batch of segments.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/config.h"
#include "checkpoint/weights.h"
#include "kernels/backend.h"
#include "memory/ledger.h"
#include "state/sequence_state.h"

namespace lockstep::models {

/// Rows of one sequence in a forward: a prompt chunk, one decode step or a window of guesses, all alike.
struct Segment {
  state::SequenceState* state = nullptr;   // prepare(tokens.size()) was done; guesses of an earlier forward are dropped
  std::span<const std::int32_t> tokens;    // at positions state->length() and on; each below vocab_size
  int stand = 0;                           // leading rows that stand, >= 1; the others are guesses (at most 15)
  enum class Logits { kNone, kLast, kAll } logits = Logits::kLast;
};

struct Family;  // registry.h

using Progress = std::function<void(double fraction, const std::string& what)>;

struct LoadOptions {
  kernels::Isa isa = kernels::Isa::kGeneric;
  int threads = 1;
  std::int64_t context = 0;  // positions a sequence may have; 0: the smaller of the model's limit and kDefaultContext
  int max_rows = 512;        // rows of one forward
  int max_logit_rows = 1;
  bool inspect_only = false;  // names, shapes and formats are checked, nothing is packed: such a model has no backend and cannot run
  Progress progress;
};
inline constexpr std::int64_t kDefaultContext = 32768;

class Model {
 public:
  virtual ~Model() = default;
  Model(const Model&) = delete;

  /// Reads the config, refuses by name what no family or kernel does, then maps and packs the weights, reserved in `ledger`.
  static Result<std::unique_ptr<Model>> load(const std::filesystem::path& folder, const LoadOptions& options, memory::Ledger& ledger);

  const checkpoint::Config& config() const { return config_; }
  const kernels::ModelShape& shape() const { return shape_; }
  kernels::Backend& backend() { return *backend_; }
  const checkpoint::Weights& weights() const { return *weights_; }
  std::size_t weight_bytes() const { return weight_bytes_; }  // held: packed or copied
  std::size_t step_bytes() const { return step_bytes_; }      // weight bytes one decode step reads
  /// Multiplications and additions of one row that attends to `keys` positions, without the head: matmuls, scores and values of attention,
  /// three products with a DeltaNet state.
  double row_operations(double keys) const;

  /// Runs the rows of all segments; states advance. Rows in all at most max_rows, wanted logits at most max_logit_rows.
  void forward(std::span<Segment> segments);
  /// Logits of the i-th wanted row of the last forward (segments in order), [vocab_size] f32.
  std::span<const float> logits(int i) { return backend_->logits(i); }
  /// Not-finite flag of each row of the last forward, segments in order.
  std::span<const std::uint8_t> row_flags() { return backend_->row_flags(); }

 protected:
  friend class Loader;
  Model() = default;
  /// Order of the layers between embedding and head.
  virtual void run_layers() = 0;

  std::vector<memory::Reservation> weight_reservations_;  // given back after what they are for
  memory::Reservation scratch_reservation_;
  checkpoint::Config config_;
  kernels::ModelShape shape_;
  std::unique_ptr<kernels::RopeTable> rope_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<checkpoint::Weights> weights_;
  std::vector<std::unique_ptr<kernels::Matrix>> matrices_;
  std::vector<std::unique_ptr<kernels::Vector>> vectors_;
  const kernels::Matrix* embedding_ = nullptr;
  kernels::HeadLayer head_;

 private:
  Status load_weights(const Family& family, memory::Ledger& ledger, const Progress& progress);
  std::size_t weight_bytes_ = 0, step_bytes_ = 0;
  std::vector<kernels::SegmentView> segment_views_;
  std::vector<std::int32_t> token_ids_, positions_, logit_rows_;
};

}  // namespace lockstep::models
