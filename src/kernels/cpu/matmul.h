// CPU matmul (kernels/ops/matmul.h): y = x W^T for plain (bf16) and quantised weights, any number of rows, one meaning of the bits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/bfloat16.h"
#include "base/result.h"
#include "base/tensor.h"
#include "kernels/cpu/matmul_kernels.h"
#include "kernels/cpu/runtime/thread_pool.h"
#include "kernels/isa.h"

namespace lockstep::kernels::cpu {

/// A weight ready for matmul: bf16 rows (f16 and f32 rounded), or quantised codes repacked into tiles.
class CpuMatrix {
 public:
  virtual ~CpuMatrix() = default;
  std::int64_t out_features = 0, in_features = 0;
  std::size_t owned_bytes = 0;     // allocated by this matrix
  std::size_t read_bytes = 0;      // bytes one matmul reads (codes, scales, biases), for the bytes bound
  /// Row `id` as an embedding: bf16 values (EXACTNESS item 1: bf16(f32(scale * code + bias)) where quantised). out [in_features].
  virtual void embed(std::int64_t id, bf16* out) const = 0;
};

/// Whether matmul can take the weight; the error names it. Call before anything is mapped where shapes are known, and from make_matrix.
Status supports_matmul(const Weight& weight);

/// Bytes make_matrix allocates for a weight that supports_matmul takes.
std::size_t matrix_bytes(const Weight& weight);

/// Packs (quantised) or copies (plain) a weight; `pool` works in parallel. The packed layout may depend on `isa`. The source may be dropped
/// afterwards.
Result<std::unique_ptr<CpuMatrix>> make_matrix(const Weight& weight, Isa isa, ThreadPool& pool);

struct MatmulJob {
  const CpuMatrix* weight = nullptr;
  const float* bias = nullptr;  // [out_features] f32 or nullptr
  MatmulOutput output = MatmulOutput::kStoreBf16;
  void* y = nullptr;
  std::int64_t y_stride = 0;    // elements
};

/// Scratch for activations in every form the jobs of one call can need; sized once, nothing is allocated in a step.
class MatmulScratch {
 public:
  virtual ~MatmulScratch() = default;
  std::size_t bytes = 0;
};
/// Its size without making it, for a plan. max_rows of x, widest in_features of any weight, threads of the pool.
std::size_t matmul_scratch_bytes(int max_rows, std::int64_t max_in_features, Isa isa, int threads);
std::unique_ptr<MatmulScratch> make_matmul_scratch(int max_rows, std::int64_t max_in_features, Isa isa, int threads);

/// All jobs share x (bf16 [rows][x_stride], in_features of each job's weight equal); they run in one parallel region (two: x is prepared first).
/// row_flags [rows]: set to 1 where a quantised job met a group that is not finite (item 9). rows <= max_rows of the scratch.
void matmul(Isa isa, ThreadPool& pool, MatmulScratch& scratch, const bf16* x, std::int64_t x_stride, int rows,
            std::span<const MatmulJob> jobs, std::uint8_t* row_flags);

}  // namespace lockstep::kernels::cpu
