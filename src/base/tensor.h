// A tensor as it lies in a checkpoint file, and a weight made of one (plain) or three (MLX affine) of them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

enum class DType { kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI8, kU64, kU32, kU16, kU8, kBool };

/// Bytes of one element.
inline std::size_t dtype_bytes(DType t) {
  switch (t) {
    case DType::kF64: case DType::kI64: case DType::kU64: return 8;
    case DType::kF32: case DType::kI32: case DType::kU32: return 4;
    case DType::kF16: case DType::kBF16: case DType::kI16: case DType::kU16: return 2;
    default: return 1;
  }
}

/// Row-major view of mapped bytes. `data` may be unaligned (MLX files do not pad): use memcpy or unaligned loads.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::int64_t elements() const {
    std::int64_t n = 1;
    for (auto d : shape) n *= d;
    return n;
  }
};

/// Weight of a Linear or an Embedding, [out_features, in_features].
/// plain: `weight` is BF16, F16 or F32 [out, in]. affine (MLX): `weight` is U32 [out, in*bits/32], element e of a row is the
/// bits-wide unsigned integer at bit e*bits of the row's little-endian bytes; value = scale * code + bias, scales and biases
/// [out, in/group_size] BF16, F16 or F32.
struct Weight {
  std::string name;  // normalised module name, for messages
  std::int64_t out_features = 0, in_features = 0;
  bool affine = false;
  int bits = 0, group_size = 0;        // affine only
  TensorView weight, scales, biases;   // scales, biases: affine only
};

}  // namespace lockstep
