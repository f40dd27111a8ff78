// The blocks of a sequence's state: clear, fold, save, restore, copy, export in logical order.
#include <algorithm>

#include "kernels/cpu/runtime/cpu_backend.h"

namespace lockstep::kernels::cpu {
namespace {

// One open row's parts for a layer, from slot pointers to a packed row and back: k, g, G, d.
template <class Copy>
void open_row(const RecurrentLayout& l, std::byte* layer, std::int64_t position, std::byte* packed, Copy&& copy) {
  const std::size_t slot = std::size_t(position % kOpenSlots);
  const std::size_t k = std::size_t(l.k_row) * sizeof(bf16), g = std::size_t(l.g_row) * sizeof(float), d = std::size_t(l.d_row) * sizeof(float);
  copy(layer + l.open_k + slot * k, packed, k);
  copy(layer + l.open_g + slot * g, packed + k, g);
  copy(layer + l.open_cum + slot * g, packed + k + g, g);
  copy(layer + l.open_d + slot * d, packed + k + 2 * g, d);
}

void to_packed(std::byte* live, std::byte* packed, std::size_t bytes) { std::memcpy(packed, live, bytes); }
void to_live(std::byte* live, std::byte* packed, std::size_t bytes) { std::memcpy(live, packed, bytes); }

}  // namespace

void CpuBackend::clear(std::byte* recurrent) {
  for (int i = 0; i < shape_.delta_net_layers; i++)  // open and raw rows are never read before they are written
    std::memset(recurrent + std::size_t(i) * recurrent_.layer_bytes + recurrent_.state, 0, recurrent_.state_bytes);
}

void CpuBackend::fold(const SequenceView& sequence) {
  flush_denormals();
  pool_.parallel_for(std::int64_t(shape_.delta_net_layers) * shape_.key_heads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t i = begin; i < end; i++) {
      DeltaNetArgs args = delta_net_args(sequence.recurrent, int(i / shape_.key_heads), i % shape_.key_heads);
      args.folded = sequence.folded;
      args.length = sequence.length;
      args.scratch = thread_scratch_.get() + std::size_t(thread) * thread_scratch_floats_;
      delta_net_.fold(args);
    }
  });
}

// Kept block: for each layer S, then the last 3 raw rows (oldest first; rows before position 0 are left as they are), then the open rows.
void CpuBackend::save(const SequenceView& sequence, std::byte* kept) {
  const std::size_t raw_bytes = std::size_t(recurrent_.raw_row) * sizeof(bf16), row_bytes = recurrent_.open_row_bytes();
  for (int i = 0; i < shape_.delta_net_layers; i++) {
    std::byte* layer = sequence.recurrent + std::size_t(i) * recurrent_.layer_bytes;
    std::memcpy(kept, layer + recurrent_.state, recurrent_.state_bytes);
    kept += recurrent_.state_bytes;
    for (std::int64_t p = sequence.length - 3; p < sequence.length; p++, kept += raw_bytes) {
      if (p < 0) std::memset(kept, 0, raw_bytes);
      else std::memcpy(kept, layer + recurrent_.raw + std::size_t(p % kRawSlots) * raw_bytes, raw_bytes);
    }
    for (std::int64_t p = sequence.folded; p < sequence.length; p++, kept += row_bytes) open_row(recurrent_, layer, p, kept, to_packed);
  }
}

void CpuBackend::restore(const std::byte* kept, std::int64_t length, std::byte* recurrent) {
  const std::size_t raw_bytes = std::size_t(recurrent_.raw_row) * sizeof(bf16), row_bytes = recurrent_.open_row_bytes();
  for (int i = 0; i < shape_.delta_net_layers; i++) {
    std::byte* layer = recurrent + std::size_t(i) * recurrent_.layer_bytes;
    std::memcpy(layer + recurrent_.state, kept, recurrent_.state_bytes);
    kept += recurrent_.state_bytes;
    for (std::int64_t p = length - 3; p < length; p++, kept += raw_bytes)
      if (p >= 0) std::memcpy(layer + recurrent_.raw + std::size_t(p % kRawSlots) * raw_bytes, kept, raw_bytes);
    for (std::int64_t p = length / kChunk * kChunk; p < length; p++, kept += row_bytes)
      open_row(recurrent_, layer, p, const_cast<std::byte*>(kept), to_live);
  }
}

void CpuBackend::copy_page(const std::byte* from, std::byte* to, int tokens) {
  const std::size_t v_row = std::size_t(shape_.head_dim) * sizeof(bf16), k_row = kPageTokens * sizeof(bf16);
  for (int i = 0; i < shape_.attention_layers; i++)
    for (std::int64_t h = 0; h < shape_.kv_heads; h++) {
      const std::size_t k = k_offset(i, h), v = k + head_page_bytes();
      for (std::int64_t d = 0; d < shape_.head_dim; d++)
        std::memcpy(to + k + std::size_t(d) * k_row, from + k + std::size_t(d) * k_row, std::size_t(tokens) * sizeof(bf16));
      std::memcpy(to + v, from + v, std::size_t(tokens) * v_row);
    }
}

void CpuBackend::export_state(const SequenceView& sequence, const std::function<void(std::span<const std::byte>)>& sink) {
  LOCKSTEP_CHECK(sequence.length - sequence.folded < kChunk);
  if (shape_.delta_net_layers) {
    std::vector<std::byte> kept(layout_.snapshot_bytes(int(sequence.length - sequence.folded)));
    save(sequence, kept.data());
    sink(kept);
  }
  std::vector<bf16> row(std::size_t(2 * shape_.head_dim));
  for (int i = 0; i < shape_.attention_layers; i++)
    for (std::int64_t p = 0; p < sequence.length; p++)
      for (std::int64_t h = 0; h < shape_.kv_heads; h++) {
        const std::byte* at = sequence.pages[p / kPageTokens] + k_offset(i, h);
        const bf16* k = reinterpret_cast<const bf16*>(at);
        const bf16* v = reinterpret_cast<const bf16*>(at + head_page_bytes()) + p % kPageTokens * shape_.head_dim;
        for (std::int64_t d = 0; d < shape_.head_dim; d++) row[std::size_t(d)] = k[d * kPageTokens + p % kPageTokens];
        std::copy(v, v + shape_.head_dim, row.begin() + shape_.head_dim);
        sink(std::as_bytes(std::span(row)));
      }
}

}  // namespace lockstep::kernels::cpu
