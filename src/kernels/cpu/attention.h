// CPU attention over K/V pages (kernels/ops/attention.h). A page holds kPageTokens positions; for one layer and K/V head K lies
// [head_dim][kPageTokens] and V [kPageTokens][head_dim], bf16.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/bfloat16.h"
#include "kernels/cpu/dispatch.h"

namespace lockstep::kernels::cpu {

inline constexpr int kPageTokens = 32;      // divides the attention tile
inline constexpr int kAttentionTile = 128;  // keys by absolute position

/// Rows and query heads that share one K/V head of one sequence.
struct AttentionArgs {
  int rows = 0, heads = 0, head_dim = 0;
  const bf16* q = nullptr;  // element d of head h of row r: q[r * q_row_stride + h * q_head_stride + d]
  std::int64_t q_row_stride = 0, q_head_stride = 0;
  const bf16* gate = nullptr;  // nullptr: no output gate; else out is times sigmoid(gate), one store
  std::int64_t gate_row_stride = 0, gate_head_stride = 0;
  const std::byte* const* pages = nullptr;  // page of positions [32 j, 32 j + 32)
  std::size_t k_offset = 0, v_offset = 0;   // bytes into a page, of this layer and K/V head
  const std::int32_t* key_counts = nullptr;  // [rows]: row r sees keys 0 .. key_counts[r]-1 (>= 1)
  float c = 0;                               // f32(log2(e) / sqrt(head_dim))
  bf16* out = nullptr;
  std::int64_t out_row_stride = 0, out_head_stride = 0;
  float* scratch = nullptr;  // attention_scratch_floats(), 64-byte aligned
};
/// Floats of scratch one call needs.
std::size_t attention_scratch_floats(int rows, int heads, int head_dim);

struct AttentionKernels {
  void (*attention)(const AttentionArgs& args);
  /// K and V rows of one position and head into its page, NaN as 0, infinities as the largest bf16; *flag = 1 if there was one.
  /// page_k, page_v: start of this layer's and head's K and V; slot = position % kPageTokens.
  void (*store_kv)(const bf16* k, const bf16* v, int head_dim, bf16* page_k, bf16* page_v, int slot, std::uint8_t* flag);
};
LOCKSTEP_DECLARE_KERNELS(AttentionKernels, attention)
}  // namespace lockstep::kernels::cpu
