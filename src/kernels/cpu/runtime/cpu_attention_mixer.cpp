// Attention mixer: norm, q k v, head norms and rotation, K/V into pages, attention, output projection onto the residual.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/runtime/cpu_backend.h"

namespace lockstep::kernels::cpu {

std::size_t CpuBackend::k_offset(int cache_layer, std::int64_t kv_head) const {
  return (std::size_t(cache_layer) * std::size_t(shape_.kv_heads) + std::size_t(kv_head)) * 2 * head_page_bytes();
}

void CpuBackend::attention_mixer(const AttentionLayer& layer) {
  norm_rows(layer.input_norm, layer.eps);
  const std::int64_t q_row = shape_.heads * shape_.head_dim * (shape_.output_gate ? 2 : 1), kv_row = shape_.kv_heads * shape_.head_dim;
  const MatmulJob qkv[] = {{host(layer.q), host(layer.q_bias), MatmulOutput::kStoreBf16, a_.get(), q_row},
                           {host(layer.k), host(layer.k_bias), MatmulOutput::kStoreBf16, b_.get(), kv_row},
                           {host(layer.v), host(layer.v_bias), MatmulOutput::kStoreBf16, c_.get(), kv_row}};
  project(normed_.get(), shape_.hidden, qkv);
  rotate_and_store(layer);
  attend(layer);
  const MatmulJob out[] = {{host(layer.o), host(layer.o_bias), MatmulOutput::kAddResidual, residual_.get(), shape_.hidden}};
  project(d_.get(), shape_.heads * shape_.head_dim, out);
}

// Every row's K and V are in their pages before any row attends.
void CpuBackend::rotate_and_store(const AttentionLayer& layer) {
  const std::int64_t dim = shape_.head_dim, q_head = dim * (shape_.output_gate ? 2 : 1), half = rope_->rotary_dim / 2;
  for (const SegmentView& segment : segments_) {
    over_rows(segment.rows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; i++) {
        const std::int64_t r = segment.first_row + i, position = positions_[std::size_t(r)];
        const float *cos = rope_->cos.data() + position * half, *sin = rope_->sin.data() + position * half;
        for (std::int64_t h = 0; h < shape_.heads; h++) {
          bf16* q = a_.get() + r * shape_.heads * q_head + h * q_head;
          rope_kernels_.norm_rope(q, host(layer.q_norm), int(dim), layer.eps, cos, sin, rope_->rotary_dim, q);
        }
        std::byte* page = segment.sequence.pages[position / kPageTokens];
        for (std::int64_t h = 0; h < shape_.kv_heads; h++) {
          bf16* k = b_.get() + (r * shape_.kv_heads + h) * dim;
          rope_kernels_.norm_rope(k, host(layer.k_norm), int(dim), layer.eps, cos, sin, rope_->rotary_dim, k);
          std::byte* at = page + k_offset(layer.cache_layer, h);
          attention_.store_kv(k, c_.get() + (r * shape_.kv_heads + h) * dim, int(dim), reinterpret_cast<bf16*>(at),
                              reinterpret_cast<bf16*>(at + head_page_bytes()), int(position % kPageTokens), flags_.get() + r);
        }
      }
    });
  }
}

void CpuBackend::attend(const AttentionLayer& layer) {
  const int group = int(shape_.heads / shape_.kv_heads);
  // Items are cut until there is work for every thread: rows first, then the query heads of a group. No cut touches bits.
  items_.clear();
  std::int64_t blocks = 0;
  for (const SegmentView& segment : segments_) blocks += (segment.rows + kRowsOfItem - 1) / kRowsOfItem * shape_.kv_heads;
  const int heads = blocks >= 2 * pool_.size() ? group : std::max(1, group / 2);
  for (std::size_t s = 0; s < segments_.size(); s++) {
    const SegmentView& segment = segments_[s];
    for (int row = 0; row < segment.rows; row += kRowsOfItem)
      for (int kv = 0; kv < shape_.kv_heads; kv++)
        for (int h = 0; h < group; h += heads)
          items_.push_back({int(s), row, std::min(kRowsOfItem, segment.rows - row), kv * group + h, std::min(heads, group - h)});
  }
  for (int r = 0; r < rows_; r++) key_counts_[std::size_t(r)] = positions_[std::size_t(r)] + 1;
#ifdef LOCKSTEP_PLANT_ROW_TOO_FAR  // tests/exactness/planted.sh: a kernel that reads one key too far must turn the driver red
  for (int r = 0; r < rows_; r++) key_counts_[std::size_t(r)] += (positions_[std::size_t(r)] + 1) % kPageTokens != 0;
#endif
  const std::int64_t dim = shape_.head_dim, q_head = dim * (shape_.output_gate ? 2 : 1);
  const float c = float(1.4426950408889634 / std::sqrt(double(dim)));
  // Long rows first, so that the threads end together.
  pool_.parallel_for(std::int64_t(items_.size()), 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t i = begin; i < end; i++) {
      const Item& item = items_[items_.size() - 1 - std::size_t(i)];
      const SegmentView& segment = segments_[std::size_t(item.segment)];
      const std::int64_t row = segment.first_row + item.row;
      AttentionArgs args;
      args.rows = item.rows;
      args.heads = item.heads;
      args.head_dim = int(dim);
      args.q = a_.get() + row * shape_.heads * q_head + item.head * q_head;
      args.q_row_stride = shape_.heads * q_head;
      args.q_head_stride = q_head;
      if (shape_.output_gate) {
        args.gate = args.q + dim;
        args.gate_row_stride = args.q_row_stride;
        args.gate_head_stride = q_head;
      }
      args.pages = segment.sequence.pages;
      args.k_offset = k_offset(layer.cache_layer, item.head / group);
      args.v_offset = args.k_offset + head_page_bytes();
      args.key_counts = key_counts_.data() + row;
      args.c = c;
      args.out = d_.get() + (row * shape_.heads + item.head) * dim;
      args.out_row_stride = shape_.heads * dim;
      args.out_head_stride = dim;
      args.scratch = thread_scratch_.get() + std::size_t(thread) * thread_scratch_floats_;
      attention_.attention(args);
    }
  });
}

}  // namespace lockstep::kernels::cpu
