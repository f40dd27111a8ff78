// Plain (bf16) matmul of one instruction set: the f32 dot of kernels/ops/matmul.h. One text for all vector sets: a block of 32 inputs is
// kHalves x kSteps vectors, half h of the 16 lanes and step s (odd inputs, then even; the BF16 dot does both in one).
#include "kernels/cpu/target.h"
#include "kernels/cpu/matmul_finish.h"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {
namespace {

std::int64_t blocks_of(std::int64_t in_features) { return (in_features + kDotBlock - 1) / kDotBlock; }

#if defined(LOCKSTEP_ISA_GENERIC)
// The definition, one value at a time. Prepared x: f32 rows padded with zeros to whole blocks.
std::size_t x_bytes(int rows, std::int64_t in) { return std::size_t(rows) * std::size_t(blocks_of(in)) * kDotBlock * sizeof(float); }
std::size_t scratch_bytes(std::int64_t) { return 0; }
std::int64_t tile_outputs(std::int64_t) { return kTileOutputs; }

void prepare(const bf16* x, std::int64_t x_stride, std::int64_t in, int begin, int end, bool, void* prepared) {
  const std::int64_t padded = blocks_of(in) * kDotBlock;
  for (int r = begin; r < end; r++) {
    float* out = static_cast<float*>(prepared) + r * padded;
    for (std::int64_t i = 0; i < padded; i++) out[i] = i < in ? to_float(x[r * x_stride + i]) : 0.0f;
  }
}

float dot(const std::byte* w, const float* x, std::int64_t in) {
  float lanes[16] = {};
  for (std::int64_t b = 0; b < in; b += kDotBlock) {
    bf16 block[kDotBlock] = {};
    std::memcpy(block, w + b * 2, std::size_t(std::min<std::int64_t>(kDotBlock, in - b)) * sizeof(bf16));
    for (int i = 0; i < 16; i++) {
      lanes[i] = std::fma(to_float(block[2 * i + 1]), x[b + 2 * i + 1], lanes[i]);
      lanes[i] = std::fma(to_float(block[2 * i]), x[b + 2 * i], lanes[i]);
    }
  }
  for (int s = 8; s; s /= 2)
    for (int i = 0; i < s; i++) lanes[i] += lanes[i + s];
  return lanes[0] + 0.0f;
}

void few(const PlainCall& c, std::int64_t begin, std::int64_t end) {
  const std::int64_t padded = blocks_of(c.in_features) * kDotBlock;
  for (std::int64_t o = begin; o < end; o++)
    for (int r = 0; r < c.rows; r++) {
      const float sum = dot(c.weight + o * c.in_features * 2, static_cast<const float*>(c.x) + r * padded, c.in_features);
      finish(c.target, r, o, 1, &sum);
    }
}
void many(const PlainCall&, int, int, std::int64_t, std::int64_t, std::byte*) {}
bool dot_is_exact() { return true; }
constexpr int kFewRows = std::numeric_limits<int>::max();

#else

#if defined(LOCKSTEP_ISA_AVX2)
constexpr int kLanes = 8, kHalves = 2, kSteps = 2, kFewAtOnce = 4, kBlockOutputs = 3, kChunkSteps = 64;
using V = __m256;
LOCKSTEP_INLINE V zero() { return _mm256_setzero_ps(); }
LOCKSTEP_INLINE V load(const float* p) { return _mm256_load_ps(p); }
LOCKSTEP_INLINE void store(float* p, V v) { _mm256_store_ps(p, v); }
LOCKSTEP_INLINE V step(V acc, V w, V x) { return _mm256_fmadd_ps(w, x, acc); }
/// 32 bf16 as they lie in memory -> v[h * kSteps + s].
LOCKSTEP_INLINE void split(const std::byte* p, V* v) {
  const __m256i odd = _mm256_set1_epi32(int(0xffff0000u));
  const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(p)), b = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(p + 32));
  v[0] = _mm256_castsi256_ps(_mm256_and_si256(a, odd));
  v[1] = _mm256_castsi256_ps(_mm256_slli_epi32(a, 16));
  v[2] = _mm256_castsi256_ps(_mm256_and_si256(b, odd));
  v[3] = _mm256_castsi256_ps(_mm256_slli_epi32(b, 16));
}
LOCKSTEP_INLINE __m256 lanes_low(const V* v) { return v[0]; }
LOCKSTEP_INLINE __m256 lanes_high(const V* v) { return v[1]; }
bool dot_is_exact() { return true; }
#else
constexpr int kLanes = 16, kHalves = 1, kFewAtOnce = 8, kBlockOutputs = 6, kChunkSteps = 32;
using V = __m512;
LOCKSTEP_INLINE V zero() { return _mm512_setzero_ps(); }
LOCKSTEP_INLINE V load(const float* p) { return _mm512_load_ps(p); }
LOCKSTEP_INLINE void store(float* p, V v) { _mm512_store_ps(p, v); }
LOCKSTEP_INLINE __m256 lanes_low(const V* v) { return _mm512_castps512_ps256(v[0]); }
LOCKSTEP_INLINE __m256 lanes_high(const V* v) { return _mm512_extractf32x8_ps(v[0], 1); }
LOCKSTEP_INLINE V odd_inputs(__m512i w) { return _mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32(int(0xffff0000u)))); }
LOCKSTEP_INLINE V even_inputs(__m512i w) { return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16)); }
#if defined(LOCKSTEP_ISA_AVX512)
constexpr int kSteps = 2;
LOCKSTEP_INLINE V step(V acc, V w, V x) { return _mm512_fmadd_ps(w, x, acc); }
LOCKSTEP_INLINE void split(const std::byte* p, V* v) {
  const __m512i w = _mm512_loadu_si512(p);
  v[0] = odd_inputs(w);
  v[1] = even_inputs(w);
}
bool dot_is_exact() { return true; }
#else
constexpr int kSteps = 1;  // a vector holds 32 bf16 as they lie
LOCKSTEP_INLINE V step(V acc, V w, V x) {
  return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)x);  // the intrinsics have no cast between the two
}
LOCKSTEP_INLINE void split(const std::byte* p, V* v) { v[0] = _mm512_castsi512_ps(_mm512_loadu_si512(p)); }

/// The BF16 dot against the fused pair, odd product first: plain values, a wide range, products near and below the smallest normal, denormals.
bool dot_equals_pair() {
  std::uint64_t state = 0x243F6A8885A308D3ull;
  auto draw = [&state]() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return std::uint32_t(state >> 16);
  };
  struct Range { int low, span, acc_low, acc_span; } const ranges[] = {{120, 14, 110, 40}, {100, 54, 110, 40}, {50, 30, 0, 20}, {0, 3, 0, 20}};
  for (const Range& range : ranges)
    for (int n = 0; n < 4096; n++) {
      alignas(64) std::uint16_t a[32], b[32];
      alignas(64) std::uint32_t c[16];
      for (int i = 0; i < 32; i++) {
        a[i] = std::uint16_t((draw() & 0x807fu) | (range.low + draw() % range.span) << 7);
        b[i] = std::uint16_t((draw() & 0x807fu) | (range.low ? range.low + draw() % range.span : 120 + draw() % 14) << 7);
      }
      for (auto& v : c) v = (draw() << 16 & 0x80000000u) | (draw() & 0x7fffffu) | (range.acc_low + draw() % range.acc_span) << 23;
      const __m512i wa = _mm512_load_si512(a), wb = _mm512_load_si512(b);
      const V acc = _mm512_castsi512_ps(_mm512_load_si512(c));
      const V got = step(acc, _mm512_castsi512_ps(wa), _mm512_castsi512_ps(wb));
      const V want = _mm512_fmadd_ps(even_inputs(wa), even_inputs(wb), _mm512_fmadd_ps(odd_inputs(wa), odd_inputs(wb), acc));
      if (_mm512_cmpneq_epi32_mask(_mm512_castps_si512(got), _mm512_castps_si512(want))) return false;
    }
  return true;
}

bool dot_is_exact() {
  const unsigned control = _mm_getcsr();
  _mm_setcsr(control | 0x8040);  // denormals flushed, as wherever a matmul runs
  const bool exact = dot_equals_pair();
  _mm_setcsr(control);
  return exact;
}
#endif
#endif

constexpr int kBlockVectors = kHalves * kSteps, kBlockFloats = kBlockVectors * kLanes;
constexpr int kFewRows = 8, kBlockRows = 4, kRowTile = 8;
constexpr int kPrefetchBytes = 4096;

LOCKSTEP_INLINE void prefetch(const std::byte* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0); }

/// The tree over the 16 lanes, without its last two additions.
LOCKSTEP_INLINE __m128 fold_lanes(__m256 low, __m256 high) {
  const __m256 s = _mm256_add_ps(low, high);
  return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}
LOCKSTEP_INLINE float fold_sum(const V* acc) {
  __m128 s = fold_lanes(lanes_low(acc), lanes_high(acc));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  s = _mm_add_ps(s, _mm_permute_ps(s, 0xb1));
  return _mm_cvtss_f32(_mm_add_ps(s, _mm_setzero_ps()));
}

// ---- few rows: every weight row is read once, straight from the file ----

template <int R>
LOCKSTEP_INLINE void few_block(const std::byte* w, const float* x, std::int64_t x_row, V (*acc)[kHalves]) {
  V v[kBlockVectors];
  split(w, v);
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; h++)
#pragma GCC unroll 2
      for (int s = 0; s < kSteps; s++) acc[r][h] = step(acc[r][h], v[h * kSteps + s], load(x + r * x_row + (h * kSteps + s) * kLanes));
}

/// One weight row, R rows of x: sums[r * kTileOutputs].
template <int R, bool kPrefetch>
void few_dot(const std::byte* w, const float* x, std::int64_t x_row, std::int64_t in, float* sums) {
  V acc[R][kHalves];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; h++) acc[r][h] = zero();
  const std::byte* const end = w + in / kDotBlock * 64;
  for (; w != end; w += 64, x += kBlockFloats) {
    if (kPrefetch) prefetch(w + kPrefetchBytes);
    few_block<R>(w, x, x_row, acc);
  }
  if (in % kDotBlock) {
    alignas(64) std::byte tail[64] = {};
    std::memcpy(tail, w, std::size_t(in % kDotBlock) * sizeof(bf16));
    few_block<R>(tail, x, x_row, acc);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; r++) sums[r * kTileOutputs] = fold_sum(acc[r]);
}

using FewDot = void (*)(const std::byte*, const float*, std::int64_t, std::int64_t, float*);
constexpr FewDot kFewDots[] = {few_dot<1, true>, few_dot<2, true>, few_dot<3, true>, few_dot<4, true>,
#if !defined(LOCKSTEP_ISA_AVX2)
                               few_dot<5, true>, few_dot<6, true>, few_dot<7, true>, few_dot<8, true>
#endif
};

/// One row on file pages: an Intel chip's own prefetch stops at the page (70 percent of read bandwidth, 90 with ours), an AMD one's is better
/// left alone (94 percent, 82 with ours).
FewDot one_row() {
  static const bool amd = __builtin_cpu_is("amd");
  return amd ? few_dot<1, false> : few_dot<1, true>;
}

void few(const PlainCall& c, std::int64_t begin, std::int64_t end) {
  const std::int64_t x_row = blocks_of(c.in_features) * kBlockFloats, w_row = c.in_features * 2;
  const float* x = static_cast<const float*>(c.x);
  const FewDot first = c.rows == 1 ? one_row() : nullptr;
  alignas(64) float sums[kFewRows * kTileOutputs];
  for (std::int64_t o = begin; o < end; o += kTileOutputs) {
    const int n = int(std::min<std::int64_t>(kTileOutputs, end - o));
    for (int i = 0; i < n; i++)
      for (int r = 0; r < c.rows; r += kFewAtOnce) {
        const FewDot dot = first ? first : kFewDots[std::min(kFewAtOnce, c.rows - r) - 1];
        dot(c.weight + (o + i) * w_row, x + r * x_row, x_row, c.in_features, sums + r * kTileOutputs + i);
      }
    for (int r = 0; r < c.rows; r++) finish(c.target, r, o, n, sums + r * kTileOutputs);
  }
}

// ---- many rows: a tile of outputs is split once into scratch (L2), then kBlockRows x kBlockOutputs accumulators at a time, one half of the
// lanes after the other. x: [block of rows][half][step][row][lane], w: [half][group of outputs][step][output][lane]: one stream each. ----

std::size_t x_bytes(int rows, std::int64_t in) {
  return std::size_t((rows + kRowTile - 1) / kRowTile * kRowTile) * std::size_t(blocks_of(in)) * kBlockFloats * sizeof(float);
}
std::int64_t tile_outputs(std::int64_t in) { return in <= 1536 ? 48 : 96; }
std::size_t scratch_bytes(std::int64_t in) {
  const std::int64_t n = tile_outputs(in);
  return std::size_t(n * (blocks_of(in) * kBlockFloats + kHalves * kRowTile * kLanes)) * sizeof(float);
}

/// One row of bf16, zeros past its end, into vectors: half h, step t at out[h * half + t * stride].
LOCKSTEP_INLINE void split_row(const std::byte* row, std::int64_t in, float* out, std::int64_t half, std::int64_t stride) {
  const std::int64_t blocks = blocks_of(in);
  for (std::int64_t b = 0; b < blocks; b++) {
    V v[kBlockVectors];
    if (b * kDotBlock + kDotBlock <= in) {
      split(row + b * 64, v);
    } else {
      alignas(64) std::byte tail[64] = {};
      std::memcpy(tail, row + b * 64, std::size_t(in - b * kDotBlock) * sizeof(bf16));
      split(tail, v);
    }
    for (int h = 0; h < kHalves; h++)
      for (int s = 0; s < kSteps; s++) store(out + h * half + (b * kSteps + s) * stride, v[h * kSteps + s]);
  }
}

void prepare(const bf16* x, std::int64_t x_stride, std::int64_t in, int begin, int end, bool many, void* prepared) {
  const std::int64_t steps = blocks_of(in) * kSteps, row_floats = steps * kHalves * kLanes;
  for (int r = begin; r < end; r++) {
    const std::byte* row = reinterpret_cast<const std::byte*>(x + r * x_stride);
    float* out = static_cast<float*>(prepared);
    if (many) {
      out += r / kBlockRows * kBlockRows * row_floats + r % kBlockRows * kLanes;
      split_row(row, in, out, steps * kBlockRows * kLanes, kBlockRows * kLanes);
    } else if (kHalves == 1) {
      split_row(row, in, out + r * row_floats, 0, kLanes);
    } else {  // [block][half][step]: what few_block walks
      out += r * row_floats;
      for (std::int64_t b = 0; b < blocks_of(in); b++)
        split_row(row + b * 64, std::min<std::int64_t>(kDotBlock, in - b * kDotBlock), out + b * kBlockFloats, kSteps * kLanes, kLanes);
    }
  }
}

/// c[(row * c_stride + output) * kLanes]: lanes so far. The unroll pragmas on the short loops keep the accumulators out of the stack.
template <bool kFirst>
LOCKSTEP_INLINE void multiply_block(const float* x, const float* w, std::int64_t steps, float* c, std::int64_t c_stride) {
  V acc[kBlockRows][kBlockOutputs];
#pragma GCC unroll 4
  for (int r = 0; r < kBlockRows; r++)
#pragma GCC unroll 6
    for (int o = 0; o < kBlockOutputs; o++) acc[r][o] = kFirst ? zero() : load(c + (r * c_stride + o) * kLanes);
  constexpr int kUnroll = kSteps;
  for (const float* end = w + steps * kBlockOutputs * kLanes; w != end; w += kUnroll * kBlockOutputs * kLanes, x += kUnroll * kBlockRows * kLanes)
#pragma GCC unroll 2
    for (int s = 0; s < kUnroll; s++) {
      V v[kBlockOutputs];
#pragma GCC unroll 6
      for (int o = 0; o < kBlockOutputs; o++) v[o] = load(w + (s * kBlockOutputs + o) * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < kBlockRows; r++) {
        const V xv = load(x + (s * kBlockRows + r) * kLanes);
#pragma GCC unroll 6
        for (int o = 0; o < kBlockOutputs; o++) acc[r][o] = step(acc[r][o], v[o], xv);
      }
    }
#pragma GCC unroll 4
  for (int r = 0; r < kBlockRows; r++)
#pragma GCC unroll 6
    for (int o = 0; o < kBlockOutputs; o++) store(c + (r * c_stride + o) * kLanes, acc[r][o]);
}
void multiply_first(const float* x, const float* w, std::int64_t steps, float* c, std::int64_t c_stride) { multiply_block<true>(x, w, steps, c, c_stride); }
void multiply_next(const float* x, const float* w, std::int64_t steps, float* c, std::int64_t c_stride) { multiply_block<false>(x, w, steps, c, c_stride); }

/// Four neighbouring outputs; `half` from lanes 0 to 7 to lanes 8 to 15.
LOCKSTEP_INLINE void fold_four(const float* c, std::int64_t half, float* sums) {
  __m128 f[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) f[i] = fold_lanes(_mm256_load_ps(c + i * kLanes), _mm256_load_ps(c + i * kLanes + half));
  const __m128 ab = _mm_add_ps(_mm_unpacklo_ps(f[0], f[1]), _mm_unpackhi_ps(f[0], f[1]));
  const __m128 cd = _mm_add_ps(_mm_unpacklo_ps(f[2], f[3]), _mm_unpackhi_ps(f[2], f[3]));
  _mm_store_ps(sums, _mm_add_ps(_mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab)), _mm_setzero_ps()));
}

/// Rows [r0, r0 + rows), rows <= kRowTile, against the n outputs in scratch.
void multiply_rows(const float* x, const float* w, std::int64_t steps, int rows, int n, std::int64_t tile, float* c) {
  const std::int64_t half_lanes = kRowTile * tile * kLanes;
  for (int h = 0; h < kHalves; h++)
    for (std::int64_t k = 0; k < steps; k += kChunkSteps) {
      const std::int64_t length = std::min<std::int64_t>(kChunkSteps, steps - k);
      for (int o = 0; o < n; o += kBlockOutputs)
        for (int r = 0; r < rows; r += kBlockRows) {
          const float* xp = x + (r * kHalves + h * kBlockRows) * steps * kLanes + k * kBlockRows * kLanes;
          const float* wp = w + (h * tile + o) * steps * kLanes + k * kBlockOutputs * kLanes;
          (k == 0 ? multiply_first : multiply_next)(xp, wp, length, c + h * half_lanes + (r * tile + o) * kLanes, tile);
        }
    }
}

void many(const PlainCall& call, int row_begin, int row_end, std::int64_t begin, std::int64_t end, std::byte* scratch) {
  const std::int64_t steps = blocks_of(call.in_features) * kSteps, tile = tile_outputs(call.in_features);
  float* w = reinterpret_cast<float*>(scratch);
  float* c = w + tile * steps * kHalves * kLanes;
  for (std::int64_t o0 = begin; o0 < end; o0 += tile) {
    const int n = int(std::min<std::int64_t>(tile, end - o0));
    for (int i = 0; i < n; i++)
      split_row(call.weight + (o0 + i) * call.in_features * 2, call.in_features,
                w + i / kBlockOutputs * kBlockOutputs * steps * kLanes + i % kBlockOutputs * kLanes, tile * steps * kLanes,
                kBlockOutputs * kLanes);
    for (int r0 = row_begin; r0 < row_end; r0 += kRowTile) {
      const int rows = std::min(kRowTile, row_end - r0);
      multiply_rows(static_cast<const float*>(call.x) + r0 * steps * kHalves * kLanes, w, steps, rows, n, tile, c);
      for (int r = 0; r < rows; r++)
        for (int o = 0; o < n; o += kTileOutputs) {
          alignas(64) float sums[kTileOutputs];
          for (int i = 0; i < kTileOutputs; i += 4) fold_four(c + (r * tile + o + i) * kLanes, kHalves == 1 ? 8 : kRowTile * tile * kLanes, sums + i);
          finish(call.target, r0 + r, o0 + o, std::min(kTileOutputs, n - o), sums);
        }
    }
  }
}
#endif

}  // namespace

const PlainKernels plain_matmul = {kFewRows, tile_outputs, x_bytes, scratch_bytes, prepare, few, many, dot_is_exact};

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
#include "kernels/cpu/target_end.h"
