// CPU Gated DeltaNet parts (kernels/ops/delta_net.h): convolution with SiLU, coefficients, and the chunked delta rule.
// A sequence keeps, for each layer: S [value heads][Dk][Dv] f32 at position `folded` (a multiple of 16); a ring of kOpenSlots open rows, slot =
// position % kOpenSlots, each {k [key heads][Dk] bf16, g and G [value heads] f32, d [value heads][Dv] f32}; a ring of kRawSlots raw
// conv rows [channels] bf16, slot = position % kRawSlots.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/bfloat16.h"
#include "kernels/cpu/dispatch.h"

namespace lockstep::kernels::cpu {

inline constexpr int kChunk = 16;      // rows of a chunk, anchored at absolute positions
inline constexpr int kOpenSlots = 32;  // 15 that stand and 16 that may not
inline constexpr int kRawSlots = 20;   // 3 that stand and 16 after, at most
inline constexpr int kConvTaps = 4;

struct ConvArgs {
  int rows = 0, channels = 0;        // rows of one segment; all channels of the layer
  int channel_begin = 0, channel_end = 0;  // part to work on
  std::int64_t position = 0;         // of row 0; rows before position 0 are zero
  const bf16* raw = nullptr;         // [rows][raw_stride] this call's raw rows
  std::int64_t raw_stride = 0;
  const bf16* ring = nullptr;        // [kRawSlots][channels]: rows before `position`
  const float* taps = nullptr;       // [kConvTaps][channels] f32, oldest tap first
  bf16* out = nullptr;               // [rows][out_stride]
  std::int64_t out_stride = 0;
};

/// One key head of one segment with its value heads.
struct DeltaNetArgs {
  int key_dim = 0, value_dim = 0, value_heads = 0;  // value heads of this key head
  float* state = nullptr;                           // [value_heads][key_dim][value_dim]
  bf16* open_k = nullptr;                           // slot s: open_k + s * open_k_stride, [key_dim]
  std::int64_t open_k_stride = 0;
  float* open_g = nullptr;                          // slot s: open_g + s * open_g_stride, [value_heads]
  float* open_cum = nullptr;                        // G, same strides as open_g
  std::int64_t open_g_stride = 0;
  float* open_d = nullptr;                          // slot s: open_d + s * open_d_stride, [value_heads][value_dim]
  std::int64_t open_d_stride = 0;
  std::int64_t folded = 0;  // position of `state`
  std::int64_t length = 0;  // standing rows at entry: position of row 0; length - folded <= 31. Complete chunks are folded first.
  int rows = 0, stand = 0;  // rows of this call and how many of the leading ones stand; rows - stand <= 16
  const bf16* q = nullptr;  // row r: q + r * qkv_stride [key_dim]; k alike; v: [value_heads][value_dim]
  const bf16* k = nullptr;
  const bf16* v = nullptr;
  std::int64_t qkv_stride = 0;
  const float* g = nullptr;  // row r: g + r * coefficient_stride [value_heads]; beta alike
  const float* beta = nullptr;
  std::int64_t coefficient_stride = 0;
  float scale = 0;           // f32(key_dim^-1/2)
  float* out = nullptr;      // row r: out + r * out_stride [value_heads][value_dim] f32
  std::int64_t out_stride = 0;
  std::uint8_t* row_flags = nullptr;  // [rows]; set to 1 where v, u or d was not finite
  float* scratch = nullptr;           // delta_net_scratch_floats(), 64-byte aligned
};
std::size_t delta_net_scratch_floats(int key_dim, int value_dim);

struct DeltaNetKernels {
  /// out = store(silu(conv)): four fused multiply-adds from zero, oldest tap first, SiLU in f32.
  void (*conv_silu)(const ConvArgs& args);
  /// One row, value heads [0, heads): beta = sigmoid(b), g = max(neg_exp_a * softplus(a + dt_bias), -1e4). Flag as item 9.
  void (*coefficients)(const bf16* a, const bf16* b, const float* neg_exp_a, const float* dt_bias, int heads, float* g, float* beta);
  void (*delta_net)(const DeltaNetArgs& args);
  /// Folds the complete chunks of rows [folded, length) into state, as `delta_net` does first; rows = 0 of it. Uses state, open_*, folded,
  /// length, dims, scratch of args.
  void (*fold)(const DeltaNetArgs& args);
};
LOCKSTEP_DECLARE_KERNELS(DeltaNetKernels, delta_net)
}  // namespace lockstep::kernels::cpu
