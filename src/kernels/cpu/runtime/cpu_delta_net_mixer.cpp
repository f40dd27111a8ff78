// DeltaNet mixer: norm, projections, convolution, q and k norms, coefficients, the chunked delta rule, gated norm, output projection.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/runtime/cpu_backend.h"

namespace lockstep::kernels::cpu {
namespace {
constexpr int kChannelsOfItem = 512;
}

void CpuBackend::delta_net_mixer(const DeltaNetLayer& layer) {
  norm_rows(layer.input_norm, layer.eps);
  const std::int64_t channels = recurrent_.raw_row, v_row = recurrent_.d_row, heads = shape_.value_heads;
  // c_ holds b then a of a row: one stride for both.
  const MatmulJob in[] = {{host(layer.in_qkv), nullptr, MatmulOutput::kStoreBf16, a_.get(), channels},
                          {host(layer.in_z), nullptr, MatmulOutput::kStoreBf16, b_.get(), v_row},
                          {host(layer.in_b), nullptr, MatmulOutput::kStoreBf16, c_.get(), 2 * heads},
                          {host(layer.in_a), nullptr, MatmulOutput::kStoreBf16, c_.get() + heads, 2 * heads}};
  project(normed_.get(), shape_.hidden, in);
  convolve(layer);
  keep_raw_rows(layer);
  recur(layer);
  over_rows(rows_, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; r++)
      for (std::int64_t h = 0; h < heads; h++) {
        const std::int64_t at = r * v_row + h * shape_.value_dim;
        norm_.gated_rms_norm(f_.get() + at, b_.get() + at, host(layer.norm), int(shape_.value_dim), layer.eps, b_.get() + at);
      }
  });
  const MatmulJob out[] = {{host(layer.out), nullptr, MatmulOutput::kAddResidual, residual_.get(), shape_.hidden}};
  project(b_.get(), v_row, out);
}

// a_ raw rows -> d_ rows of q | k | v after SiLU, q and k normalised in place; coefficients g_, beta_.
void CpuBackend::convolve(const DeltaNetLayer& layer) {
  const std::int64_t channels = recurrent_.raw_row, heads = shape_.value_heads;
  items_.clear();
  for (std::size_t s = 0; s < segments_.size(); s++)
    for (int c = 0; c < channels; c += kChannelsOfItem) items_.push_back({int(s), 0, 0, c, int(std::min<std::int64_t>(kChannelsOfItem, channels - c))});
  auto work = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; i++) {
      const SegmentView& segment = segments_[std::size_t(items_[std::size_t(i)].segment)];
      ConvArgs args;
      args.rows = segment.rows;
      args.channels = int(channels);
      args.channel_begin = items_[std::size_t(i)].head;
      args.channel_end = args.channel_begin + items_[std::size_t(i)].heads;
      args.position = segment.sequence.length;
      args.raw = a_.get() + segment.first_row * channels;
      args.raw_stride = channels;
      args.ring = reinterpret_cast<const bf16*>(segment.sequence.recurrent + std::size_t(layer.state_layer) * recurrent_.layer_bytes + recurrent_.raw);
      args.taps = host(layer.conv_taps);
      args.out = d_.get() + segment.first_row * channels;
      args.out_stride = channels;
      delta_net_.conv_silu(args);
    }
  };
  if (rows_ < 4) work(0, std::int64_t(items_.size()), 0);
  else pool_.parallel_for(std::int64_t(items_.size()), 1, work);
  over_rows(rows_, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; r++) {
      for (std::int64_t h = 0; h < 2 * shape_.key_heads; h++) {  // q heads, then k heads
        bf16* x = d_.get() + r * channels + h * shape_.key_dim;
        norm_.l2_norm(x, int(shape_.key_dim), x, flags_.get() + r);
      }
      delta_net_.coefficients(c_.get() + r * 2 * heads + heads, c_.get() + r * 2 * heads, host(layer.neg_exp_a), host(layer.dt_bias), int(heads),
                              g_.get() + r * heads, beta_.get() + r * heads);
    }
  });
}

// The ring gets the last 3 raw rows that stand and every row after them.
void CpuBackend::keep_raw_rows(const DeltaNetLayer& layer) {
  const std::int64_t channels = recurrent_.raw_row;
  for (const SegmentView& segment : segments_) {
    bf16* ring = reinterpret_cast<bf16*>(segment.sequence.recurrent + std::size_t(layer.state_layer) * recurrent_.layer_bytes + recurrent_.raw);
    for (int r = std::max(0, segment.stand - (kConvTaps - 1)); r < segment.rows; r++)
      std::memcpy(ring + (segment.sequence.length + r) % kRawSlots * channels, a_.get() + (segment.first_row + r) * channels,
                  std::size_t(channels) * sizeof(bf16));
  }
}

DeltaNetArgs CpuBackend::delta_net_args(std::byte* recurrent, int state_layer, std::int64_t key_head) const {
  std::byte* base = recurrent + std::size_t(state_layer) * recurrent_.layer_bytes;
  const std::int64_t per_key = shape_.value_heads / shape_.key_heads, first = key_head * per_key;
  DeltaNetArgs args;
  args.key_dim = int(shape_.key_dim);
  args.value_dim = int(shape_.value_dim);
  args.value_heads = int(per_key);
  args.state = reinterpret_cast<float*>(base + recurrent_.state) + first * shape_.key_dim * shape_.value_dim;
  args.open_k = reinterpret_cast<bf16*>(base + recurrent_.open_k) + key_head * shape_.key_dim;
  args.open_k_stride = recurrent_.k_row;
  args.open_g = reinterpret_cast<float*>(base + recurrent_.open_g) + first;
  args.open_cum = reinterpret_cast<float*>(base + recurrent_.open_cum) + first;
  args.open_g_stride = recurrent_.g_row;
  args.open_d = reinterpret_cast<float*>(base + recurrent_.open_d) + first * shape_.value_dim;
  args.open_d_stride = recurrent_.d_row;
  args.scale = float(1.0 / std::sqrt(double(shape_.key_dim)));
  return args;
}

void CpuBackend::recur(const DeltaNetLayer& layer) {
  const std::int64_t channels = recurrent_.raw_row, heads = shape_.value_heads, key_heads = shape_.key_heads, per_key = heads / key_heads;
  const std::int64_t v_row = recurrent_.d_row;
  // A flag byte of a row is shared by its heads: every thread raises flags of its own, or-ed after.
  pool_.parallel_for(std::int64_t(segments_.size()) * key_heads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t i = begin; i < end; i++) {
      const SegmentView& segment = segments_[std::size_t(i / key_heads)];
      const std::int64_t h = i % key_heads, row = segment.first_row;
      DeltaNetArgs args = delta_net_args(segment.sequence.recurrent, layer.state_layer, h);
      args.folded = segment.sequence.folded;
      args.length = segment.sequence.length;
      args.rows = segment.rows;
      args.stand = segment.stand;
      args.q = d_.get() + row * channels + h * shape_.key_dim;
      args.k = args.q + key_heads * shape_.key_dim;
      args.v = d_.get() + row * channels + 2 * key_heads * shape_.key_dim + h * per_key * shape_.value_dim;
      args.qkv_stride = channels;
      args.g = g_.get() + row * heads + h * per_key;
      args.beta = beta_.get() + row * heads + h * per_key;
      args.coefficient_stride = heads;
      args.out = f_.get() + row * v_row + h * per_key * shape_.value_dim;
      args.out_stride = v_row;
      args.row_flags = thread_flags_.data() + std::size_t(thread) * std::size_t(options_.max_rows) + row;
      args.scratch = thread_scratch_.get() + std::size_t(thread) * thread_scratch_floats_;
      delta_net_.delta_net(args);
    }
  });
  for (int t = 0; t < pool_.size(); t++)
    for (int r = 0; r < rows_; r++) {
      std::uint8_t& flag = thread_flags_[std::size_t(t) * std::size_t(options_.max_rows) + std::size_t(r)];
      flags_.get()[r] |= flag;
      flag = 0;
    }
}

}  // namespace lockstep::kernels::cpu
