// The CPU backend: layer parts composed of single operations, run on one pool of threads.
#pragma once
#include <cstring>
#include <memory>
#include <vector>

#include "base/bfloat16.h"
#include "kernels/backend.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/delta_net.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/rms_norm.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/runtime/thread_pool.h"

namespace lockstep::kernels::cpu {

class MatrixHandle final : public Matrix {
 public:
  std::unique_ptr<CpuMatrix> matrix;
};

class VectorHandle final : public Vector {
 public:
  std::vector<float> values;
};

/// Query rows of one attention item: enough to share K and V, few enough to spread over threads.
inline constexpr int kRowsOfItem = 16;

inline const CpuMatrix* host(const Matrix* m) { return static_cast<const MatrixHandle*>(m)->matrix.get(); }
inline const float* host(const Vector* v) { return v ? static_cast<const VectorHandle*>(v)->values.data() : nullptr; }

/// 64-byte aligned scratch, allocated once.
template <class T>
class Scratch {
 public:
  explicit Scratch(std::size_t n = 0) : n_(n), data_(n ? static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(64))) : nullptr) {
    if (n) std::memset(static_cast<void*>(data_.get()), 0, n * sizeof(T));
  }
  T* get() const { return data_.get(); }
  std::size_t size() const { return n_; }

 private:
  struct Free {
    void operator()(T* p) const { ::operator delete(p, std::align_val_t(64)); }
  };
  std::size_t n_;
  std::unique_ptr<T, Free> data_;
};

/// Byte offsets of the parts of one DeltaNet layer inside the live recurrent block.
struct RecurrentLayout {
  std::size_t state = 0, open_k = 0, open_g = 0, open_cum = 0, open_d = 0, raw = 0, layer_bytes = 0;
  std::int64_t k_row = 0, g_row = 0, d_row = 0, raw_row = 0;  // elements of one slot
  std::size_t state_bytes = 0;
  explicit RecurrentLayout(const ModelShape& shape);
  std::size_t open_row_bytes() const { return std::size_t(k_row) * 2 + std::size_t(g_row) * 8 + std::size_t(d_row) * 4; }
};

class CpuBackend final : public Backend {
 public:
  CpuBackend(const ModelShape& shape, const CpuOptions& options, const RopeTable* rope);

  std::size_t matrix_bytes(const Weight& weight) const override { return cpu::matrix_bytes(weight); }
  Result<std::unique_ptr<Matrix>> load_matrix(const Weight& weight) override;
  std::unique_ptr<Vector> load_vector(std::span<const float> values) override;
  std::unique_ptr<Vector> load_neg_exp(std::span<const float> values) override;

  void clear(std::byte* recurrent) override;
  void fold(const SequenceView& sequence) override;
  void save(const SequenceView& sequence, std::byte* kept) override;
  void restore(const std::byte* kept, std::int64_t length, std::byte* recurrent) override;
  void copy_page(const std::byte* from, std::byte* to, int tokens) override;
  void export_state(const SequenceView& sequence, const std::function<void(std::span<const std::byte>)>& sink) override;

  int max_rows() const override { return options_.max_rows; }
  int max_logit_rows() const override { return options_.max_logit_rows; }
  void begin(const BatchView& batch) override;
  void embed(const Matrix& table) override;
  void attention_mixer(const AttentionLayer& layer) override;
  void delta_net_mixer(const DeltaNetLayer& layer) override;
  void mlp(const MlpLayer& layer) override;
  void head(const HeadLayer& layer) override;
  std::span<const float> logits(int i) override;
  std::span<const std::uint8_t> row_flags() override { return {flags_.get(), std::size_t(rows_)}; }
  void parallel(int n, const std::function<void(int, int)>& f) override;
  int threads() const override { return pool_.size(); }

 private:
  void norm_rows(const Vector* weight, float eps);  // residual -> normed, every row
  void project(const bf16* x, std::int64_t x_stride, std::span<const MatmulJob> jobs);
  void rotate_and_store(const AttentionLayer& layer);
  void attend(const AttentionLayer& layer);
  void convolve(const DeltaNetLayer& layer);
  void recur(const DeltaNetLayer& layer);
  void keep_raw_rows(const DeltaNetLayer& layer);
  DeltaNetArgs delta_net_args(std::byte* recurrent, int state_layer, std::int64_t key_head) const;
  std::size_t k_offset(int cache_layer, std::int64_t kv_head) const;  // bytes into a page
  std::size_t head_page_bytes() const { return std::size_t(shape_.head_dim) * kPageTokens * sizeof(bf16); }
  /// f(begin, end) over rows, on the pool when there are enough of them to pay for it.
  template <class F>
  void over_rows(std::int64_t rows, F&& f) {
    if (rows < 4) return f(std::int64_t(0), rows);
    pool_.parallel_for(rows, std::max<std::int64_t>(1, rows / (4 * pool_.size())), [&](std::int64_t b, std::int64_t e, int) { f(b, e); });
  }

  const ModelShape shape_;
  const CpuOptions options_;
  const RopeTable* rope_;
  const RecurrentLayout recurrent_;
  ThreadPool pool_;
  const RmsNormKernels& norm_;
  const RopeKernels& rope_kernels_;
  const AttentionKernels& attention_;
  const DeltaNetKernels& delta_net_;
  const ElementwiseKernels& elementwise_;
  std::unique_ptr<MatmulScratch> matmul_scratch_;

  // The batch, copied by begin into storage sized once.
  std::vector<SegmentView> segments_;
  std::vector<std::int32_t> token_ids_, positions_, logit_rows_;
  int rows_ = 0;

  struct Item {  // a piece of attention or DeltaNet work
    int segment, row, rows, head, heads;
  };
  std::vector<Item> items_;
  std::vector<std::int32_t> key_counts_;

  Scratch<bf16> residual_, normed_;  // [rows][hidden]
  Scratch<bf16> a_, b_, c_, d_;      // per part: q | qkv | gate, k | z | up, v | b, a, mixer output
  Scratch<float> f_, g_, beta_;      // DeltaNet output and coefficients
  Scratch<float> logits_, thread_scratch_;
  std::size_t thread_scratch_floats_ = 0;
  Scratch<std::uint8_t> flags_;
  std::vector<std::uint8_t> head_flags_;    // of the wanted rows
  std::vector<std::uint8_t> thread_flags_;  // [threads][max_rows]
};

}  // namespace lockstep::kernels::cpu
