// What a model is written on: layer parts over a flat batch, shaped for a device. Operations are enqueued in order and return nothing; a
// batch's metadata goes up once (begin); nothing is read back inside a forward; nothing is allocated after construction. A backend states
// the layout of the states it keeps; everyone else moves them as opaque blocks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/tensor.h"
#include "kernels/isa.h"
#include "kernels/rope_table.h"

namespace lockstep::kernels {

/// A weight as the backend holds it.
class Matrix {
 public:
  virtual ~Matrix() = default;
  std::int64_t out_features = 0, in_features = 0;
  std::size_t owned_bytes = 0;  // allocated for it
  std::size_t read_bytes = 0;   // read by one matmul (bytes bound)
};

/// A 1-D f32 parameter as the backend holds it.
class Vector {
 public:
  virtual ~Vector() = default;
};

/// Everything a backend must know of a model to size its scratch and its states.
struct ModelShape {
  std::int64_t hidden = 0, intermediate = 0, vocab = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;  // attention layers
  bool output_gate = false;
  int attention_layers = 0, delta_net_layers = 0;
  std::int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, conv_taps = 0;  // DeltaNet layers
  std::int64_t context = 0;  // positions a sequence may have
  std::int64_t conv_channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
};

/// Sizes of the opaque blocks of a sequence's state.
struct StateLayout {
  int page_tokens = 0;                // positions of a K/V page (all attention layers of it)
  std::size_t page_bytes = 0;         // 0: the model has no attention layer
  std::size_t recurrent_bytes = 0;    // live block: S, open rows, raw rows of all DeltaNet layers; 0 if there is none
  std::size_t snapshot_bytes(int open_rows) const { return snapshot_fixed_bytes + std::size_t(open_rows) * snapshot_row_bytes; }
  std::size_t snapshot_fixed_bytes = 0, snapshot_row_bytes = 0;  // kept block: S, raw rows and the standing open rows (at most 15)
  /// Pages that hold positions [0, tokens), the last one perhaps in part.
  std::int64_t pages(std::int64_t tokens) const { return page_tokens ? (tokens + page_tokens - 1) / page_tokens : 0; }
  /// Bytes of a live sequence of so many tokens.
  std::size_t sequence_bytes(std::int64_t tokens) const { return recurrent_bytes + std::size_t(pages(tokens)) * page_bytes; }
};

/// A sequence's state as kernels see it. `length` rows stand; S of the recurrent block is at `folded`, a multiple of 16.
struct SequenceView {
  std::byte* const* pages = nullptr;  // pages[j] holds positions [j, j + 1) * page_tokens
  std::byte* recurrent = nullptr;
  std::int64_t length = 0, folded = 0;
};

/// Rows of one sequence in a batch: positions length, length + 1, ... of which the first `stand` stand.
struct SegmentView {
  SequenceView sequence;
  int first_row = 0, rows = 0, stand = 0;
};

struct BatchView {
  std::span<const SegmentView> segments;
  std::span<const std::int32_t> token_ids;   // [rows]
  std::span<const std::int32_t> positions;   // [rows]
  std::span<const std::int32_t> logit_rows;  // rows whose logits are wanted, ascending
};

struct AttentionLayer {
  const Vector* input_norm = nullptr;
  const Matrix *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr;
  const Vector *q_bias = nullptr, *k_bias = nullptr, *v_bias = nullptr, *o_bias = nullptr;  // nullptr: none
  const Vector *q_norm = nullptr, *k_norm = nullptr;                                        // nullptr: none
  float eps = 0;
  int cache_layer = 0;  // index among the attention layers
};

struct DeltaNetLayer {
  const Vector* input_norm = nullptr;
  const Matrix *in_qkv = nullptr, *in_z = nullptr, *in_b = nullptr, *in_a = nullptr, *out = nullptr;
  const Vector *conv_taps = nullptr;                     // [taps][channels]
  const Vector *neg_exp_a = nullptr, *dt_bias = nullptr;  // -exp(A_log), dt_bias: [value_heads]
  const Vector* norm = nullptr;                          // [value_dim]
  float eps = 0;
  int state_layer = 0;  // index among the DeltaNet layers
};

struct MlpLayer {
  const Vector* norm = nullptr;
  const Matrix *gate = nullptr, *up = nullptr, *down = nullptr;
  const Vector *gate_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr;
  float eps = 0;
};

struct HeadLayer {
  const Vector* norm = nullptr;
  const Matrix* weight = nullptr;
  float eps = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Loading.
  /// Bytes load_matrix allocates for this weight, whose format cpu_supports takes.
  virtual std::size_t matrix_bytes(const Weight& weight) const = 0;
  virtual Result<std::unique_ptr<Matrix>> load_matrix(const Weight& weight) = 0;
  virtual std::unique_ptr<Vector> load_vector(std::span<const float> values) = 0;
  /// -exp(A_log) with the backend's exp.
  virtual std::unique_ptr<Vector> load_neg_exp(std::span<const float> values) = 0;

  // States.
  const StateLayout& layout() const { return layout_; }
  /// Makes a live recurrent block the state of position 0.
  virtual void clear(std::byte* recurrent) = 0;
  /// Folds complete standing chunks, so that length - folded < 16 afterwards; the caller updates `folded`.
  virtual void fold(const SequenceView& sequence) = 0;
  /// Live block -> kept block of layout().snapshot_bytes(length - folded) bytes; the sequence is folded and nothing is open but what stands.
  virtual void save(const SequenceView& sequence, std::byte* kept) = 0;
  /// Kept block of a state at `length` -> live block.
  virtual void restore(const std::byte* kept, std::int64_t length, std::byte* recurrent) = 0;
  /// Copies a page's first `tokens` positions (copy on write of a shared page).
  virtual void copy_page(const std::byte* from, std::byte* to, int tokens) = 0;
  /// The state in logical order, piece by piece (fingerprint): S, standing open rows, last raw rows, K and V of every position. The
  /// sequence is folded.
  virtual void export_state(const SequenceView& sequence, const std::function<void(std::span<const std::byte>)>& sink) = 0;

  // A forward: begin, then layer parts in order, then logits and flags may be read.
  virtual int max_rows() const = 0;
  virtual int max_logit_rows() const = 0;
  virtual void begin(const BatchView& batch) = 0;
  virtual void embed(const Matrix& table) = 0;
  virtual void attention_mixer(const AttentionLayer& layer) = 0;
  virtual void delta_net_mixer(const DeltaNetLayer& layer) = 0;
  virtual void mlp(const MlpLayer& layer) = 0;
  virtual void head(const HeadLayer& layer) = 0;
  /// Logits of the i-th wanted row, [vocab] f32; valid until the next begin.
  virtual std::span<const float> logits(int i) = 0;
  /// [rows] 1 where a value was not finite (EXACTNESS item 9); a row's logits included once head ran.
  virtual std::span<const std::uint8_t> row_flags() = 0;
  /// Runs f(i, thread) for i in [0, n) on the backend's host threads (draws of many lanes); thread < threads().
  virtual void parallel(int n, const std::function<void(int i, int thread)>& f) = 0;
  virtual int threads() const = 0;

 protected:
  StateLayout layout_;
};

struct CpuOptions {
  Isa isa = Isa::kGeneric;
  int threads = 1;
  int max_rows = 512;      // rows of one forward
  int max_logit_rows = 1;  // of which logits may be wanted
};

/// What the CPU backend cannot do of a shape, by name; called before any weight is mapped.
Status cpu_supports(const ModelShape& shape);
/// Likewise of a weight's format and shape.
Status cpu_supports(const Weight& weight);
/// Bytes of scratch make_cpu_backend will allocate.
std::size_t cpu_scratch_bytes(const ModelShape& shape, const CpuOptions& options);
std::unique_ptr<Backend> make_cpu_backend(const ModelShape& shape, const CpuOptions& options, const RopeTable* rope);

}  // namespace lockstep::kernels
