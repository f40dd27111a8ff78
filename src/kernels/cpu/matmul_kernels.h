// Inner functions of the CPU matmul for one instruction set (meaning and bits: kernels/ops/matmul.h). Who calls them, on which pieces and
// with which scratch: runtime/matmul.cpp. Two shapes of each product with equal bits: `few` reads a weight once for a handful of rows,
// `many` expands a piece of the weight into scratch and runs blocks of rows over it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/bfloat16.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/ops/matmul.h"

namespace lockstep::kernels::cpu {

enum class MatmulOutput {
  kStoreBf16,    // y bf16 [rows][y_stride] = store(sum + bias)
  kF32,          // y f32 = sum + bias (logits)
  kAddResidual,  // y bf16: y = store(f32(y) + f32(store(sum + bias)))  (two roundings)
};

/// Where sums go; y is [rows][y_stride] of the output's type, row 0 that of row 0 of the prepared x.
struct MatmulTarget {
  const float* bias = nullptr;  // [out_features] or nullptr
  MatmulOutput output = MatmulOutput::kStoreBf16;
  void* y = nullptr;
  std::int64_t y_stride = 0;  // elements
  std::int64_t out_features = 0;
};

/// Tile of 16 outputs of a quantised weight, repacked at load: the tile's groups in order, each of its blocks of 32 inputs followed by 16
/// scales and 16 biases. A block is `bits` vectors of 64 bytes: the vectors of the low plane (2, 4 or 8 bits of a code), then those of the high
/// plane (1 or 2 bits; absent for 2, 4 and 8 bits). 16-bit lane 2 o + s of a vector holds in its fields, lowest first, the plane's bits of
/// output o's inputs 2 p + s, p ascending from field to field and on to the next vector.
struct TileLayout {
  int bits = 0, group_size = 0;
  enum class Params { kBf16, kF16, kF32 } params = Params::kBf16;  // of scales and biases: the file's own
  std::int64_t groups = 0;                                         // in_features / group_size
  std::size_t block_bytes() const { return std::size_t(bits) * 64; }
  std::size_t codes_bytes() const { return block_bytes() * std::size_t(group_size / 32); }  // of a group
  std::size_t group_bytes() const { return codes_bytes() + (params == Params::kF32 ? 128 : 64); }
  std::size_t tile_bytes() const { return group_bytes() * std::size_t(groups); }
};
inline constexpr int kTileOutputs = 16;
constexpr int low_plane_bits(int bits) { return bits < 4 ? 2 : bits < 8 ? 4 : 8; }

struct PlainCall {
  const std::byte* weight = nullptr;  // rows of in_features bf16
  std::int64_t in_features = 0;
  const void* x = nullptr;  // prepared, 64-byte aligned
  int rows = 0;             // of the prepared x
  MatmulTarget target;
};

struct PlainKernels {
  int few_rows = 0;  // most rows `few` takes
  /// Outputs a piece of `many` should be a multiple of.
  std::int64_t (*tile_outputs)(std::int64_t in_features);
  /// Bytes of `rows` prepared rows of x in either form, and of scratch `many` needs.
  std::size_t (*x_bytes)(int rows, std::int64_t in_features);
  std::size_t (*scratch_bytes)(std::int64_t in_features);
  /// Rows [begin, end) of x into the prepared form; with `many`, begin is a multiple of 8.
  void (*prepare)(const bf16* x, std::int64_t x_stride, std::int64_t in_features, int begin, int end, bool many, void* prepared);
  /// All rows, outputs [begin, end).
  void (*few)(const PlainCall& call, std::int64_t begin, std::int64_t end);
  /// Rows [row_begin, row_end), row_begin a multiple of 8, outputs [begin, end).
  void (*many)(const PlainCall& call, int row_begin, int row_end, std::int64_t begin, std::int64_t end, std::byte* scratch);
  /// Whether this chip's BF16 dot gives the bits of the fused pair; a set without one says true. Takes some milliseconds.
  bool (*dot_is_exact)();
};
LOCKSTEP_DECLARE_KERNELS(PlainKernels, plain_matmul)

/// Rows of x cut into integers, in blocks of `block_rows` rows (the last one may have fewer; its place has not): integers [block][32
/// inputs][row of the block][32], units and sums [block][group][row of the block].
struct IntegerRows {
  std::int16_t* integers = nullptr;
  float* units = nullptr;  // 2^(e-14), 0 where the group counts as zeros
  float* sums = nullptr;   // f32(X)
};

struct QuantisedCall {
  const std::byte* tiles = nullptr;  // 64-byte aligned
  TileLayout layout;
  IntegerRows x;
  int rows = 0;
  MatmulTarget target;
};

struct QuantisedKernels {
  int few_rows = 0;
  int block_rows = 0;  // of x for `many`, at most 8; x for `few` is one block of the call's rows
  int many_tiles = 0;  // tiles `many` works at once
  std::size_t scratch_bytes = 0;  // `many`, any weight
  /// Rows [begin, end) of x. flags[row] = 1 where a group is not finite.
  void (*prepare)(const bf16* x, std::int64_t x_stride, std::int64_t in_features, int group_size, int begin, int end, int block_rows,
                  const IntegerRows& prepared, std::uint8_t* flags);
  void (*few)(const QuantisedCall& call, std::int64_t tile_begin, std::int64_t tile_end);
  /// At most kManyRows rows at a time.
  void (*many)(const QuantisedCall& call, int row_begin, int row_end, std::int64_t tile_begin, std::int64_t tile_end, std::byte* scratch);
};
LOCKSTEP_DECLARE_KERNELS(QuantisedKernels, quantised_matmul)
inline constexpr int kManyRows = 128;

}  // namespace lockstep::kernels::cpu
