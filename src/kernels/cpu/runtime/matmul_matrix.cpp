// From a checkpoint's weight to what the kernels read (cpu/matmul_kernels.h states the tiles).
#include "kernels/cpu/runtime/matmul_matrix.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>

namespace lockstep::kernels::cpu {
namespace {

using Params = TileLayout::Params;

// Far above any model, low enough that no product below overflows.
constexpr std::int64_t kMostFeatures = std::int64_t(1) << 28, kMostElements = std::int64_t(1) << 42;

bool is_float(DType t) { return t == DType::kBF16 || t == DType::kF16 || t == DType::kF32; }

Status check_shape(const TensorView& t, std::int64_t rows, std::int64_t columns) {
  if (t.shape.size() == 2 && t.shape[0] == rows && t.shape[1] == columns) return {};
  std::string shape;
  for (auto d : t.shape) shape += fmt::format("{}{}", shape.empty() ? "" : ", ", d);
  return Error{ErrorCode::kCorruptFile, fmt::format("{} has shape [{}] instead of [{}, {}]", t.name, shape, rows, columns), t.name};
}

Status check_bytes(const TensorView& t) {
  if (t.data && t.bytes == std::size_t(t.elements()) * dtype_bytes(t.dtype)) return {};
  return Error{ErrorCode::kCorruptFile,
               fmt::format("{} holds {} bytes, its shape needs {}", t.name, t.bytes, std::size_t(t.elements()) * dtype_bytes(t.dtype)),
               t.name};
}

std::uint16_t load16(const std::byte* p) {
  std::uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}
float load_f32(const std::byte* p) {
  float v;
  std::memcpy(&v, p, 4);
  return v;
}

float half_to_float(std::uint16_t h) {
  const std::uint32_t sign = std::uint32_t(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(float(fraction) * 0x1p-24f));
}

float element(const std::byte* p, DType type, std::int64_t i) {
  switch (type) {
    case DType::kF32: return load_f32(p + i * 4);
    case DType::kF16: return half_to_float(load16(p + i * 2));
    default: return to_float(load16(p + i * 2));
  }
}

// ---- packing ----

/// 32 codes of a row (bits * 4 bytes) into lane 2 o and 2 o + 1 of a block's vectors. `block` is zero there.
template <int kBits>
void pack_block(const std::byte* row, std::byte* block, int o) {
  constexpr int kLow = low_plane_bits(kBits), kHigh = kBits - kLow;
  std::byte bytes[kBits * 4 + 8] = {};
  std::memcpy(bytes, row, kBits * 4);
  std::array<std::uint16_t, 2 * kBits> lanes{};  // [vector][s]
  for (int i = 0; i < 32; i++) {
    const int bit = i * kBits, pair = i / 2, s = i % 2;
    const unsigned code = unsigned(load16(bytes + bit / 8)) >> bit % 8 & ((1u << kBits) - 1);
    lanes[std::size_t(pair / (16 / kLow) * 2 + s)] |= std::uint16_t((code & ((1u << kLow) - 1)) << pair % (16 / kLow) * kLow);
    if constexpr (kHigh > 0)
      lanes[std::size_t((kLow + pair / (16 / kHigh)) * 2 + s)] |= std::uint16_t(code >> kLow << pair % (16 / kHigh) * kHigh);
  }
  for (int v = 0; v < kBits; v++) std::memcpy(block + v * 64 + o * 4, &lanes[std::size_t(v * 2)], 4);
}

/// The common case: nibbles of 8 inputs become two lanes by moves of whole words.
template <>
void pack_block<4>(const std::byte* row, std::byte* block, int o) {
  for (int half = 0; half < 2; half++) {
    std::uint64_t w;
    std::memcpy(&w, row + half * 8, 8);
    auto gather = [](std::uint64_t nibbles) {  // low nibbles of 8 bytes -> 16 bits in each half
      nibbles &= 0x0f0f0f0f0f0f0f0full;
      nibbles = (nibbles | nibbles >> 4) & 0x00ff00ff00ff00ffull;
      return (nibbles | nibbles >> 8) & 0x0000ffff0000ffffull;
    };
    const std::uint64_t lanes = gather(w) | gather(w >> 4) << 16;
    std::memcpy(block + 2 * half * 64 + o * 4, &lanes, 4);
    const std::uint32_t next = std::uint32_t(lanes >> 32);
    std::memcpy(block + (2 * half + 1) * 64 + o * 4, &next, 4);
  }
}

using PackBlock = void (*)(const std::byte*, std::byte*, int);
PackBlock pack_block_of(int bits) {
  switch (bits) {
    case 2: return pack_block<2>;
    case 3: return pack_block<3>;
    case 4: return pack_block<4>;
    case 5: return pack_block<5>;
    case 6: return pack_block<6>;
    default: return pack_block<8>;
  }
}

Params params_of(const Weight& w) {
  if (w.scales.dtype != w.biases.dtype || w.scales.dtype == DType::kF32) return Params::kF32;
  return w.scales.dtype == DType::kBF16 ? Params::kBf16 : Params::kF16;
}

void pack_param(const TensorView& from, std::int64_t i, Params kind, std::byte* to) {
  if (kind != Params::kF32) {
    std::memcpy(to, from.data + i * 2, 2);
    return;
  }
  const float v = element(from.data, from.dtype, i);
  std::memcpy(to, &v, 4);
}

void pack_tile(const Weight& w, const TileLayout& l, std::int64_t tile, std::byte* to) {
  const PackBlock pack = pack_block_of(l.bits);
  const std::int64_t row_bytes = w.in_features / 8 * l.bits;
  const std::size_t param_bytes = l.params == Params::kF32 ? 4 : 2;
  for (int o = 0; o < kTileOutputs && tile * kTileOutputs + o < w.out_features; o++) {
    const std::int64_t output = tile * kTileOutputs + o;
    const std::byte* row = w.weight.data + output * row_bytes;
    for (std::int64_t g = 0; g < l.groups; g++) {
      std::byte* group = to + std::size_t(g) * l.group_bytes();
      for (int b = 0; b < l.group_size / 32; b++, row += l.bits * 4) pack(row, group + std::size_t(b) * l.block_bytes(), o);
      std::byte* params = group + l.codes_bytes();
      pack_param(w.scales, output * l.groups + g, l.params, params + std::size_t(o) * param_bytes);
      pack_param(w.biases, output * l.groups + g, l.params, params + std::size_t(kTileOutputs + o) * param_bytes);
    }
  }
}

int code_at(const std::byte* block, int bits, int output, int input) {
  const int low = low_plane_bits(bits), high = bits - low, pair = input / 2, lane = 2 * output + input % 2;
  auto field = [&](int first_vector, int width) {
    const int per_vector = 16 / width;
    return load16(block + (first_vector + pair / per_vector) * 64 + lane * 2) >> (pair % per_vector * width) & ((1 << width) - 1);
  };
  return field(0, low) | (high ? field(low, high) << low : 0);
}

Error no_room(const Weight& w, std::size_t bytes) {
  return Error{ErrorCode::kDoesNotFit, fmt::format("no memory for {}: {} bytes", w.name, bytes), w.name};
}

TileLayout layout_of(const Weight& w) { return {w.bits, w.group_size, params_of(w), w.in_features / w.group_size}; }

std::size_t plain_bytes(const Weight& w) { return std::size_t(w.out_features) * std::size_t(w.in_features) * sizeof(bf16); }

Status pack_affine(const Weight& w, ThreadPool& pool, StoredMatrix& m) {
  m.affine = true;
  m.layout = layout_of(w);
  const std::size_t tile_bytes = m.layout.tile_bytes(), bytes = tile_bytes * std::size_t(m.tiles());
  m.owned = Pages::shared(bytes);
  if (!m.owned.data()) return no_room(w, bytes);
  m.data = m.owned.data();
  m.owned_bytes = Pages::rounded(bytes);
  m.read_bytes = bytes;
  pool.parallel_for(m.tiles(), 4, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; t++) pack_tile(w, m.layout, t, m.owned.data() + std::size_t(t) * tile_bytes);
  });
  return {};
}

// Rows as in the file. A copy, although bf16 could be read where it lies: on huge pages a decode step is 4 to 9 percent faster, and a file that
// shrinks or changes later cannot reach a running server.
Status copy_plain(const Weight& w, ThreadPool& pool, StoredMatrix& m) {
  m.read_bytes = plain_bytes(w);
  m.owned = Pages::shared(m.read_bytes);
  if (!m.owned.data()) return no_room(w, m.read_bytes);
  m.data = m.owned.data();
  m.owned_bytes = Pages::rounded(m.read_bytes);
  pool.parallel_for(w.out_features, 16, [&](std::int64_t begin, std::int64_t end, int) {
    if (w.weight.dtype == DType::kBF16) {
      const std::size_t row = std::size_t(w.in_features) * sizeof(bf16);
      std::memcpy(m.owned.data() + std::size_t(begin) * row, w.weight.data + std::size_t(begin) * row, std::size_t(end - begin) * row);
      return;
    }
    bf16* out = reinterpret_cast<bf16*>(m.owned.data());
    for (std::int64_t i = begin * w.in_features; i < end * w.in_features; i++) out[i] = to_bf16(element(w.weight.data, w.weight.dtype, i));
  });
  return {};
}

}  // namespace

void StoredMatrix::embed(std::int64_t id, bf16* out) const {
  LOCKSTEP_CHECK(id >= 0 && id < out_features);
  if (!affine) {
    std::memcpy(out, data + id * in_features * 2, std::size_t(in_features) * sizeof(bf16));
    return;
  }
  const std::byte* group = data + std::size_t(id / kTileOutputs) * layout.tile_bytes();
  const int o = int(id % kTileOutputs);
  const DType type = layout.params == Params::kF32 ? DType::kF32 : layout.params == Params::kF16 ? DType::kF16 : DType::kBF16;
  for (std::int64_t g = 0; g < layout.groups; g++, group += layout.group_bytes()) {
    const float scale = element(group + layout.codes_bytes(), type, o), bias = element(group + layout.codes_bytes(), type, kTileOutputs + o);
    for (int i = 0; i < layout.group_size; i++)
      *out++ = to_bf16(std::fma(scale, float(code_at(group + std::size_t(i / 32) * layout.block_bytes(), layout.bits, o, i % 32)), bias));
  }
}

Status supports_matmul(const Weight& w) {
  auto refuse = [&](std::string words) { return Error{ErrorCode::kUnsupported, fmt::format("{}: {}", w.name, words), w.name}; };
  if (w.out_features < 1 || w.in_features < 1 || w.out_features > kMostFeatures || w.in_features > kMostFeatures ||
      w.out_features > kMostElements / w.in_features)
    return refuse(fmt::format("a weight of {} outputs and {} inputs is outside what a matmul takes", w.out_features, w.in_features));
  if (!w.affine) {
    if (!is_float(w.weight.dtype)) return refuse("a plain weight must be BF16, F16 or F32");
    return check_shape(w.weight, w.out_features, w.in_features);
  }
  if (w.bits != 2 && w.bits != 3 && w.bits != 4 && w.bits != 5 && w.bits != 6 && w.bits != 8)
    return refuse(fmt::format("{} bits are not 2, 3, 4, 5, 6 or 8", w.bits));
  if (w.group_size != 32 && w.group_size != 64 && w.group_size != 128) return refuse(fmt::format("group_size {} is not 32, 64 or 128", w.group_size));
  if (w.in_features % w.group_size)
    return refuse(fmt::format("{} inputs are not a multiple of the group_size {}", w.in_features, w.group_size));
  if (w.weight.dtype != DType::kU32) return refuse("a quantised weight must be U32");
  if (!is_float(w.scales.dtype) || !is_float(w.biases.dtype)) return refuse("scales and biases must be BF16, F16 or F32");
  LOCKSTEP_TRY(check_shape(w.weight, w.out_features, w.in_features / 32 * w.bits));
  LOCKSTEP_TRY(check_shape(w.scales, w.out_features, w.in_features / w.group_size));
  return check_shape(w.biases, w.out_features, w.in_features / w.group_size);
}

std::size_t matrix_bytes(const Weight& weight) {
  if (!weight.affine) return Pages::rounded(plain_bytes(weight));
  const std::int64_t tiles = (weight.out_features + kTileOutputs - 1) / kTileOutputs;
  return Pages::rounded(layout_of(weight).tile_bytes() * std::size_t(tiles));
}

Result<std::unique_ptr<CpuMatrix>> make_matrix(const Weight& weight, Isa, ThreadPool& pool) {
  LOCKSTEP_TRY(supports_matmul(weight));
  LOCKSTEP_TRY(check_bytes(weight.weight));
  if (weight.affine) {
    LOCKSTEP_TRY(check_bytes(weight.scales));
    LOCKSTEP_TRY(check_bytes(weight.biases));
  }
  auto matrix = std::make_unique<StoredMatrix>();
  matrix->out_features = weight.out_features;
  matrix->in_features = weight.in_features;
  LOCKSTEP_TRY(weight.affine ? pack_affine(weight, pool, *matrix) : copy_plain(weight, pool, *matrix));
  return std::unique_ptr<CpuMatrix>(std::move(matrix));
}

}  // namespace lockstep::kernels::cpu
