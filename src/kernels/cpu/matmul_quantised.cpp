// Quantised matmul of one instruction set: the integer form of kernels/ops/matmul.h over tiles of 16 outputs. One text for all vector sets;
// integer sums have no order, so VPMADDWD, VPDPWSSD and scalar code agree.
#include "kernels/cpu/target.h"
#include "kernels/cpu/matmul_finish.h"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {
namespace {

using Params = TileLayout::Params;
constexpr int kFloatBias = 127;

/// What cutting a group multiplies by (2^(14-e)) and its unit (2^(e-14)), from its largest biased exponent; both 0 where it counts as zeros.
struct Cut {
  float scale, unit;
};
LOCKSTEP_INLINE Cut cut_of(int exponent) {
  if (exponent <= kZeroGroupExponent || exponent == 255) return {0, 0};
  return {std::bit_cast<float>(std::uint32_t(2 * kFloatBias + kZeroGroupExponent - exponent) << 23),
          std::bit_cast<float>(std::uint32_t(exponent - kZeroGroupExponent) << 23)};
}

#if defined(LOCKSTEP_ISA_GENERIC)
constexpr int kFewRows = std::numeric_limits<int>::max(), kBlockRows = 1, kManyTiles = 1;

/// One group: n integers, those of a block of 32 `stride` after those of the block before.
void cut_group(const bf16* x, int n, std::int16_t* integers, std::int64_t stride, float* unit, float* sum, std::uint8_t* flag) {
  int largest = 0;
  for (int i = 0; i < n; i++) largest = std::max(largest, int(x[i] & 0x7fff));
  if (largest >> 7 == 255) *flag = 1;
  const Cut cut = cut_of(largest >> 7);
  int total = 0;
  for (int i = 0; i < n; i++) {
    const int v = cut.unit == 0 ? 0 : _mm_cvtss_si32(_mm_set_ss(to_float(x[i]) * cut.scale));  // rounds half to even
    integers[i / 32 * stride + i % 32] = std::int16_t(v);
    total += v;
  }
  *unit = cut.unit;
  *sum = float(total);
}

int code_at(const std::byte* block, int bits, int output, int input) {
  const int low = low_plane_bits(bits), high = bits - low, pair = input / 2, lane = 2 * output + input % 2;
  auto field = [&](int first_vector, int width) {
    const int per_vector = 16 / width;
    std::uint16_t v;
    std::memcpy(&v, block + (first_vector + pair / per_vector) * 64 + lane * 2, 2);
    return v >> (pair % per_vector * width) & ((1 << width) - 1);
  };
  return field(0, low) | (high ? field(low, high) << low : 0);
}

float half_to_float(std::uint16_t h) {
  const std::uint32_t sign = std::uint32_t(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float v = float(fraction) * 0x1p-24f;
  return sign ? -v : v;
}

float param_at(const std::byte* p, Params kind, int i) {
  if (kind == Params::kF32) {
    float v;
    std::memcpy(&v, p + i * 4, 4);
    return v;
  }
  std::uint16_t v;
  std::memcpy(&v, p + i * 2, 2);
  return kind == Params::kBf16 ? to_float(v) : half_to_float(v);
}

/// One tile, all rows: the definition, one output at a time.
void few_tile(const QuantisedCall& c, std::int64_t tile) {
  const TileLayout& l = c.layout;
  const std::byte* base = c.tiles + std::size_t(tile) * l.tile_bytes();
  const int outputs = int(std::min<std::int64_t>(kTileOutputs, c.target.out_features - tile * kTileOutputs));
  for (int r0 = 0; r0 < c.rows; r0 += 16) {  // codes are taken apart once for 16 rows
    const int rows = std::min(16, c.rows - r0);
    for (int o = 0; o < outputs; o++) {
      float acc[16] = {};
      for (std::int64_t g = 0; g < l.groups; g++) {
        const std::byte* group = base + std::size_t(g) * l.group_bytes();
        std::int16_t codes[128];
        for (int i = 0; i < l.group_size; i++) codes[i] = std::int16_t(code_at(group + std::size_t(i / 32) * l.block_bytes(), l.bits, o, i % 32));
        const std::byte* params = group + l.codes_bytes();
        const float scale = param_at(params, l.params, o), bias = param_at(params, l.params, 16 + o);
        for (int r = 0; r < rows; r++) {
          int dot = 0;
          for (int b = 0; b < l.group_size / 32; b++) {
            const std::int16_t* x = c.x.integers + ((g * l.group_size / 32 + b) * c.rows + r0 + r) * 32;
            for (int i = 0; i < 32; i++) dot += codes[b * 32 + i] * x[i];
          }
          float p = scale * float(dot);
          p = std::fma(bias, c.x.sums[g * c.rows + r0 + r], p);
          acc[r] = std::fma(p, c.x.units[g * c.rows + r0 + r], acc[r]);
        }
      }
      for (int r = 0; r < rows; r++) finish(c.target, r0 + r, tile * kTileOutputs + o, 1, acc + r);
    }
  }
}
void few(const QuantisedCall& c, std::int64_t begin, std::int64_t end) {
  for (std::int64_t t = begin; t < end; t++) few_tile(c, t);
}
void many(const QuantisedCall&, int, int, std::int64_t, std::int64_t, std::byte*) {}
constexpr std::size_t kScratchBytes = 0;

#else

/// As above, 16 values at a time (in every vector set: 256 bits).
void cut_group(const bf16* x, int n, std::int16_t* integers, std::int64_t stride, float* unit, float* sum, std::uint8_t* flag) {
  const __m256i magnitude = _mm256_set1_epi16(0x7fff);
  __m256i m = _mm256_setzero_si256();
  for (int i = 0; i < n; i += 16) m = _mm256_max_epu16(m, _mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(x + i)), magnitude));
  const __m128i a = _mm_max_epu16(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  const int largest = 0xffff - (_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_sub_epi16(_mm_set1_epi16(-1), a))) & 0xffff);
  if (largest >> 7 == 255) *flag = 1;
  const Cut cut = cut_of(largest >> 7);
  *unit = cut.unit;
  if (cut.unit == 0) {
    for (int i = 0; i < n; i += 32) std::memset(integers + i / 32 * stride, 0, 32 * sizeof(*integers));
    *sum = 0;
    return;
  }
  const __m256 scale = _mm256_set1_ps(cut.scale);
  __m256i total = _mm256_setzero_si256();
  for (int i = 0; i < n; i += 16) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(x + i));
    const __m256i l = _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(v)), 16);
    const __m256i h = _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm256_extracti128_si256(v, 1)), 16);
    const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_castsi256_ps(l), scale));
    const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_castsi256_ps(h), scale));
    total = _mm256_add_epi32(total, _mm256_add_epi32(low, high));
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(integers + i / 32 * stride + i % 32), _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8));
  }
  __m128i t = _mm_add_epi32(_mm256_castsi256_si128(total), _mm256_extracti128_si256(total, 1));
  t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
  t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1));
  *sum = float(_mm_cvtsi128_si32(t));
}

#if defined(LOCKSTEP_ISA_AVX2)
constexpr int kHalves = 2, kBlockRows = 4, kManyTiles = 1;
using V = __m256i;  // half a vector of a tile: 8 outputs
using F = __m256;
LOCKSTEP_INLINE V zero() { return _mm256_setzero_si256(); }
LOCKSTEP_INLINE V load(const std::byte* p) { return _mm256_load_si256(reinterpret_cast<const V*>(p)); }
LOCKSTEP_INLINE void store(std::byte* p, V v) { _mm256_store_si256(reinterpret_cast<V*>(p), v); }
LOCKSTEP_INLINE V pair(const std::int16_t* x) {  // one pair of inputs to every output
  int v;
  std::memcpy(&v, x, 4);
  return _mm256_set1_epi32(v);
}
LOCKSTEP_INLINE V right(V v, int n) { return n ? _mm256_srli_epi16(v, n) : v; }
LOCKSTEP_INLINE V left(V v, int n) { return _mm256_slli_epi16(v, n); }
LOCKSTEP_INLINE V keep(V v, int mask) { return _mm256_and_si256(v, _mm256_set1_epi16(short(mask))); }
LOCKSTEP_INLINE V either(V a, V b) { return _mm256_or_si256(a, b); }
LOCKSTEP_INLINE V add(V a, V b) { return _mm256_add_epi32(a, b); }
/// The empty assembly keeps GCC from regrouping the chain of sums, which costs it registers it does not have.
struct Madd {
  static LOCKSTEP_INLINE V dot(V acc, V w, V x) {
    acc = _mm256_add_epi32(acc, _mm256_madd_epi16(w, x));
    asm("" : "+x"(acc));
    return acc;
  }
};
LOCKSTEP_INLINE F fzero() { return _mm256_setzero_ps(); }
LOCKSTEP_INLINE F fload(const float* p) { return _mm256_load_ps(p); }
LOCKSTEP_INLINE void fstore(float* p, F v) { _mm256_store_ps(p, v); }
LOCKSTEP_INLINE F fall(float v) { return _mm256_set1_ps(v); }
LOCKSTEP_INLINE F to_floats(V v) { return _mm256_cvtepi32_ps(v); }
LOCKSTEP_INLINE F fmul(F a, F b) { return _mm256_mul_ps(a, b); }
LOCKSTEP_INLINE F fused(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
LOCKSTEP_INLINE F params_at(const std::byte* p, Params kind, int half) {
  if (kind == Params::kF32) return _mm256_load_ps(reinterpret_cast<const float*>(p + half * 32));
  const __m128i v = _mm_load_si128(reinterpret_cast<const __m128i*>(p + half * 16));
  if (kind == Params::kF16) return _mm256_cvtph_ps(v);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}
#else
constexpr int kHalves = 1, kBlockRows = 8, kManyTiles = 2;
using V = __m512i;
using F = __m512;
LOCKSTEP_INLINE V zero() { return _mm512_setzero_si512(); }
LOCKSTEP_INLINE V load(const std::byte* p) { return _mm512_load_si512(p); }
LOCKSTEP_INLINE void store(std::byte* p, V v) { _mm512_store_si512(p, v); }
LOCKSTEP_INLINE V pair(const std::int16_t* x) {
  int v;
  std::memcpy(&v, x, 4);
  return _mm512_set1_epi32(v);
}
LOCKSTEP_INLINE V right(V v, int n) { return n ? _mm512_srli_epi16(v, unsigned(n)) : v; }
LOCKSTEP_INLINE V left(V v, int n) { return _mm512_slli_epi16(v, unsigned(n)); }
LOCKSTEP_INLINE V keep(V v, int mask) { return _mm512_and_si512(v, _mm512_set1_epi16(short(mask))); }
LOCKSTEP_INLINE V either(V a, V b) { return _mm512_or_si512(a, b); }
LOCKSTEP_INLINE V add(V a, V b) { return _mm512_add_epi32(a, b); }
/// The empty assembly keeps GCC from regrouping the chain of sums.
struct Madd {
  static LOCKSTEP_INLINE V dot(V acc, V w, V x) {
    acc = _mm512_add_epi32(acc, _mm512_madd_epi16(w, x));
    asm("" : "+v"(acc));
    return acc;
  }
};
/// VNNI in assembly: this set may not assume it, and a function with a wider target would not inline into the kernels it is the heart of.
struct Vnni {
  static LOCKSTEP_INLINE V dot(V acc, V w, V x) {
    asm("vpdpwssd\t%2, %1, %0" : "+v"(acc) : "v"(w), "v"(x));
    return acc;
  }
};
bool has_vnni() {
  static const bool has = __builtin_cpu_supports("avx512vnni");
  return has;
}
LOCKSTEP_INLINE F fzero() { return _mm512_setzero_ps(); }
LOCKSTEP_INLINE F fload(const float* p) { return _mm512_load_ps(p); }
LOCKSTEP_INLINE void fstore(float* p, F v) { _mm512_store_ps(p, v); }
LOCKSTEP_INLINE F fall(float v) { return _mm512_set1_ps(v); }
LOCKSTEP_INLINE F to_floats(V v) { return _mm512_cvtepi32_ps(v); }
LOCKSTEP_INLINE F fmul(F a, F b) { return _mm512_mul_ps(a, b); }
LOCKSTEP_INLINE F fused(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
LOCKSTEP_INLINE F params_at(const std::byte* p, Params kind, int) {
  if (kind == Params::kF32) return _mm512_load_ps(p);
  const __m256i v = _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
  if (kind == Params::kF16) return _mm512_cvtph_ps(v);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}
#endif

constexpr int kFewRows = 8;
constexpr int kPairs = 16;  // of inputs in a block
constexpr int kVectorBytes = 64, kHalfBytes = kVectorBytes / kHalves, kHalfOutputs = kTileOutputs / kHalves;
constexpr std::size_t kPrefetchBytes = 4608;

LOCKSTEP_INLINE void finish_tile(const MatmulTarget& t, std::int64_t row, std::int64_t tile, const float* sums) {
  finish(t, row, tile * kTileOutputs, int(std::min<std::int64_t>(kTileOutputs, t.out_features - tile * kTileOutputs)), sums);
}
LOCKSTEP_INLINE void prefetch(const std::byte* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0); }

/// Codes of pair P of a block, one to a 16-bit lane, half h of the outputs. Equal loads and shifts of neighbouring P merge when unrolled.
template <int kBits, int P>
LOCKSTEP_INLINE V codes(const std::byte* block, int h) {
  constexpr int kLow = low_plane_bits(kBits), kHigh = kBits - kLow, kPerLow = 16 / kLow, kShift = P % kPerLow * kLow, kLowMask = (1 << kLow) - 1;
  const V low_plane = load(block + P / kPerLow * kVectorBytes + h * kHalfBytes);
  const V low = kShift + kLow == 16 ? right(low_plane, kShift) : keep(right(low_plane, kShift), kLowMask);
  if constexpr (kHigh == 0) {
    return low;
  } else {
    constexpr int kPerHigh = 16 / kHigh, kFrom = P % kPerHigh * kHigh, kHighMask = ((1 << kHigh) - 1) << kLow;
    const V high_plane = load(block + (kLow + P / kPerHigh) * kVectorBytes + h * kHalfBytes);
    const V moved = kFrom >= kLow ? right(high_plane, kFrom >= kLow ? kFrom - kLow : 0) : left(high_plane, kFrom < kLow ? kLow - kFrom : 0);
    return either(low, keep(moved, kHighMask));
  }
}

/// acc of a group: p = scale * I, p = fma(bias, X, p), acc = fma(p, unit, acc).
LOCKSTEP_INLINE F add_group(F acc, V dots, F scale, F bias, float sum, float unit) {
  F p = fmul(scale, to_floats(dots));
  p = fused(bias, fall(sum), p);
  return fused(p, fall(unit), acc);
}

// ---- few rows: a tile is read once, its codes taken apart in registers for R rows ----

template <class Dot, int kBits, int R, int kChains, int P>
LOCKSTEP_INLINE void few_pair(const std::byte* block, const std::int16_t* x, V (*dots)[kChains][kHalves]) {
  V w[kHalves];
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; h++) w[h] = codes<kBits, P>(block, h);
#pragma GCC unroll 8
  for (int r = 0; r < R; r++) {
    const V xv = pair(x + r * 32 + 2 * P);
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; h++) dots[r][P % kChains][h] = Dot::dot(dots[r][P % kChains][h], w[h], xv);
  }
}

template <class Dot, int kBits, int R, int kChains, int... P>
LOCKSTEP_INLINE void few_block(const std::byte* block, const std::int16_t* x, V (*dots)[kChains][kHalves], std::integer_sequence<int, P...>) {
  (few_pair<Dot, kBits, R, kChains, P>(block, x, dots), ...);
}

/// One group of a tile for R rows: acc[r] += it. `stride`: rows of x. Returns what follows its codes and parameters.
template <class Dot, int kBits, int R>
LOCKSTEP_INLINE const std::byte* few_group(const TileLayout& l, const std::byte* at, const std::int16_t* x, int stride, const float* group_sums,
                                           const float* units, F (*acc)[kHalves]) {
  constexpr int kChains = kHalves == 2 ? 1 : R == 1 ? 4 : R <= 4 ? 2 : 1;  // the sums' own latency hides behind each other
  const int blocks = l.group_size / 32;
  const std::size_t params_bytes = l.group_bytes() - l.codes_bytes();
  V dots[R][kChains][kHalves];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int i = 0; i < kChains; i++)
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; h++) dots[r][i][h] = zero();
  for (int b = 0; b < blocks; b++, at += std::size_t(kBits) * kVectorBytes, x += stride * 32) {
#pragma GCC unroll 8
    for (int v = 0; v < kBits; v++) prefetch(at + kPrefetchBytes + v * kVectorBytes);
    few_block<Dot, kBits, R, kChains>(at, x, dots, std::make_integer_sequence<int, kPairs>());
  }
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; h++) {
    const F scale = params_at(at, l.params, h), bias = params_at(at + params_bytes / 2, l.params, h);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
#pragma GCC unroll 4
      for (int i = 1; i < kChains; i++) dots[r][0][h] = add(dots[r][0][h], dots[r][i][h]);
      acc[r][h] = add_group(acc[r][h], dots[r][0][h], scale, bias, group_sums[r], units[r]);
    }
  }
  return at + params_bytes;
}

template <class Dot, int kBits, int R>
void few_tiles(const QuantisedCall& c, std::int64_t begin, std::int64_t end) {
  constexpr int kFirst = std::min(R, kHalves == 2 ? 4 : 8);  // rows that fit in registers; the rest take the group once more, now in L1
  const TileLayout l = c.layout;
  const std::byte* at = c.tiles + std::size_t(begin) * l.tile_bytes();
  for (std::int64_t t = begin; t < end; t++) {
    F acc[R][kHalves];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; h++) acc[r][h] = fzero();
    const std::int16_t* x = c.x.integers;
    const float *units = c.x.units, *group_sums = c.x.sums;
    for (std::int64_t g = 0; g < l.groups; g++, x += R * l.group_size, units += R, group_sums += R) {
      const std::byte* group = at;
      at = few_group<Dot, kBits, kFirst>(l, group, x, R, group_sums, units, acc);
      if constexpr (R > kFirst) few_group<Dot, kBits, R - kFirst>(l, group, x + kFirst * 32, R, group_sums + kFirst, units + kFirst, acc + kFirst);
    }
    alignas(64) float sums[R][kTileOutputs];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; h++) fstore(sums[r] + h * kHalfOutputs, acc[r][h]);
    for (int r = 0; r < R; r++) finish_tile(c.target, r, t, sums[r]);
  }
}

using Few = void (*)(const QuantisedCall&, std::int64_t, std::int64_t);
template <class Dot, int kBits>
constexpr Few few_of(int rows) {
  constexpr Few kernels[] = {few_tiles<Dot, kBits, 1>, few_tiles<Dot, kBits, 2>, few_tiles<Dot, kBits, 3>, few_tiles<Dot, kBits, 4>,
                             few_tiles<Dot, kBits, 5>, few_tiles<Dot, kBits, 6>, few_tiles<Dot, kBits, 7>, few_tiles<Dot, kBits, 8>};
  return kernels[rows - 1];
}
template <class Dot>
Few few_of(int bits, int rows) {
  switch (bits) {
    case 2: return few_of<Dot, 2>(rows);
    case 3: return few_of<Dot, 3>(rows);
    case 4: return few_of<Dot, 4>(rows);
    case 5: return few_of<Dot, 5>(rows);
    case 6: return few_of<Dot, 6>(rows);
    default: return few_of<Dot, 8>(rows);
  }
}

void few(const QuantisedCall& c, std::int64_t begin, std::int64_t end) {
#if !defined(LOCKSTEP_ISA_AVX2)
  if (has_vnni()) return few_of<Vnni>(c.layout.bits, c.rows)(c, begin, end);
#endif
  few_of<Madd>(c.layout.bits, c.rows)(c, begin, end);
}

// ---- many rows: the codes of a group are expanded once to 16-bit lanes in L1, then kBlockRows rows at a time ----

template <int kBits, int... P>
LOCKSTEP_INLINE void expand_block(const std::byte* block, std::byte* w, std::size_t pair_bytes, std::integer_sequence<int, P...>) {
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; h++) (store(w + P * pair_bytes + h * kHalfBytes, codes<kBits, P>(block, h)), ...);
}
template <int kBits>
void expand(const std::byte* group, int blocks, std::byte* w, std::size_t pair_bytes) {
  for (int b = 0; b < blocks; b++)
    expand_block<kBits>(group + b * kBits * kVectorBytes, w + b * kPairs * pair_bytes, pair_bytes, std::make_integer_sequence<int, kPairs>());
}
void expand(int bits, const std::byte* group, int blocks, std::byte* w, std::size_t pair_bytes) {
  switch (bits) {
    case 2: return expand<2>(group, blocks, w, pair_bytes);
    case 3: return expand<3>(group, blocks, w, pair_bytes);
    case 4: return expand<4>(group, blocks, w, pair_bytes);
    case 5: return expand<5>(group, blocks, w, pair_bytes);
    case 6: return expand<6>(group, blocks, w, pair_bytes);
    default: return expand<8>(group, blocks, w, pair_bytes);
  }
}

struct Block {  // of one group: T tiles, R rows
  const std::byte* w;        // [pair][tile] vectors
  const std::int16_t* x;     // [32 inputs][row][32]
  const float *units, *sums;  // [row]
  const std::byte* params[kManyTiles];
  int blocks;  // of 32 inputs
  std::size_t bias_offset;
  Params kind;
  float* acc;  // [row][kManyTiles * 16]
};

template <class Dot, int T, int R>
__attribute__((noinline)) void multiply_block(const Block& k) {
  constexpr int kParts = T * kHalves, kPairBytes = T * kVectorBytes;
  V dots[R][kParts];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 2
    for (int i = 0; i < kParts; i++) dots[r][i] = zero();
  const std::byte* w = k.w;
  const std::int16_t* x = k.x;
  for (int b = 0; b < k.blocks; b++, x += (kBlockRows - 1) * 32)
    for (int q = 0; q < kPairs; q += 2, x += 4, w += 2 * kPairBytes)
#pragma GCC unroll 2
      for (int p = 0; p < 2; p++) {
        V v[kParts];
#pragma GCC unroll 2
        for (int i = 0; i < kParts; i++) v[i] = load(w + p * kPairBytes + i * kHalfBytes);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
          const V xv = pair(x + r * 32 + 2 * p);
#pragma GCC unroll 2
          for (int i = 0; i < kParts; i++) dots[r][i] = Dot::dot(dots[r][i], v[i], xv);
        }
      }
#pragma GCC unroll 2
  for (int i = 0; i < kParts; i++) {
    const std::byte* params = k.params[i / kHalves];
    const F scale = params_at(params, k.kind, i % kHalves), bias = params_at(params + k.bias_offset, k.kind, i % kHalves);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
      float* acc = k.acc + r * kManyTiles * kTileOutputs + i * kHalfOutputs;
      fstore(acc, add_group(fload(acc), dots[r][i], scale, bias, k.sums[r], k.units[r]));
    }
  }
}

template <class Dot, int T>
void multiply_block(int rows, const Block& k) {
  switch (rows) {
    case 1: return multiply_block<Dot, T, 1>(k);
    case 2: return multiply_block<Dot, T, 2>(k);
    case 3: return multiply_block<Dot, T, 3>(k);
    case 4: return multiply_block<Dot, T, 4>(k);
#if !defined(LOCKSTEP_ISA_AVX2)
    case 5: return multiply_block<Dot, T, 5>(k);
    case 6: return multiply_block<Dot, T, 6>(k);
    case 7: return multiply_block<Dot, T, 7>(k);
    default: return multiply_block<Dot, T, 8>(k);
#endif
  }
}

struct alignas(64) ManyScratch {
  std::byte w[64 * kManyTiles * kVectorBytes];  // 64 pairs of the largest group
  float acc[kManyRows * kManyTiles * kTileOutputs];
};
constexpr std::size_t kScratchBytes = sizeof(ManyScratch);

template <class Dot, int T>
void many_tiles(const QuantisedCall& c, int row_begin, int row_end, std::int64_t tile, ManyScratch& s) {
  const TileLayout l = c.layout;
  const int rows = row_end - row_begin;
  for (int r = 0; r < rows; r++) std::memset(s.acc + r * kManyTiles * kTileOutputs, 0, T * kTileOutputs * sizeof(float));
  const std::byte* group = c.tiles + std::size_t(tile) * l.tile_bytes();
  for (std::int64_t g = 0; g < l.groups; g++, group += l.group_bytes()) {
    Block k{};
    for (int i = 0; i < T; i++) {
      const std::byte* of_tile = group + std::size_t(i) * l.tile_bytes();
      expand(l.bits, of_tile, l.group_size / 32, s.w + i * kVectorBytes, T * kVectorBytes);
      k.params[i] = of_tile + l.codes_bytes();
      for (std::size_t b = 0; b < l.group_bytes(); b += 64) prefetch(of_tile + l.group_bytes() + b);
    }
    k.w = s.w;
    k.blocks = l.group_size / 32;
    k.bias_offset = (l.group_bytes() - l.codes_bytes()) / 2;
    k.kind = l.params;
    for (int r = 0; r < rows; r += kBlockRows) {
      const std::int64_t block = ((row_begin + r) / kBlockRows * l.groups + g) * kBlockRows;  // in values of a group
      k.x = c.x.integers + block * l.group_size;
      k.units = c.x.units + block;
      k.sums = c.x.sums + block;
      k.acc = s.acc + r * kManyTiles * kTileOutputs;
      multiply_block<Dot, T>(std::min(kBlockRows, rows - r), k);
    }
  }
  for (int r = 0; r < rows; r++)
    for (int i = 0; i < T; i++)
      finish_tile(c.target, row_begin + r, tile + i, s.acc + (r * kManyTiles + i) * kTileOutputs);
}

template <class Dot>
void many_of(const QuantisedCall& c, int row_begin, int row_end, std::int64_t begin, std::int64_t end, ManyScratch& s) {
  std::int64_t t = begin;
  for (; t + kManyTiles <= end; t += kManyTiles) many_tiles<Dot, kManyTiles>(c, row_begin, row_end, t, s);
  if constexpr (kManyTiles > 1)
    for (; t < end; t++) many_tiles<Dot, 1>(c, row_begin, row_end, t, s);
}

void many(const QuantisedCall& c, int row_begin, int row_end, std::int64_t begin, std::int64_t end, std::byte* scratch) {
  ManyScratch& s = *reinterpret_cast<ManyScratch*>(scratch);
#if !defined(LOCKSTEP_ISA_AVX2)
  if (has_vnni()) return many_of<Vnni>(c, row_begin, row_end, begin, end, s);
#endif
  many_of<Madd>(c, row_begin, row_end, begin, end, s);
}
#endif

void prepare(const bf16* x, std::int64_t x_stride, std::int64_t in, int group_size, int begin, int end, int block_rows, const IntegerRows& prepared,
             std::uint8_t* flags) {
  const std::int64_t groups = in / group_size;
  for (int r = begin; r < end; r++) {
    const std::int64_t block = r / block_rows, row = r % block_rows;
    for (std::int64_t g = 0; g < groups; g++) {
      std::int16_t* integers = prepared.integers + block * block_rows * in + g * group_size * block_rows + row * 32;
      const std::int64_t at = (block * groups + g) * block_rows + row;
      cut_group(x + r * x_stride + g * group_size, group_size, integers, block_rows * 32, prepared.units + at, prepared.sums + at, flags + r);
    }
  }
}

}  // namespace

const QuantisedKernels quantised_matmul = {kFewRows, kBlockRows, kManyTiles, kScratchBytes, prepare, few, many};

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
#include "kernels/cpu/target_end.h"
