// Blocks of independent fused chains: c[m][n] = a[m][0] b[0][n], then + a[m][1] b[1][n], ... in order of k, one fused multiply-add each.
// Every (m, n) is a chain of its own, so neither the block it falls in nor its company can touch its bits. Scores (q by K pages), P V and
// all the products with a DeltaNet state are such blocks. Include after target.h only.
#pragma once
#include "kernels/cpu/simd.h"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

/// What a chain starts from: +0, c as it lies, or f32(scale * c).
enum class Start { kZero, kStored, kScaled };

/// Rows of one register block: two vectors of every row, and room for two of b.
inline constexpr int kBlockRows = kLanes == 16 ? 12 : 6;

/// Rows of the next register block of `left`: as many as fit, but no rest so small that its chains would wait for each other.
LOCKSTEP_INLINE int block_rows(int left) {
  if (kBlockRows == 12 && left >= 12 && left != 13 && left != 14) return 12;
  if (kBlockRows == 12 && left >= 8) return 8;
  if (left >= 6 && left != 7 && left != 8) return 6;
  return left >= 4 ? 4 : left;
}

template <class B>
struct ChainBlock {
  const float* a;  // element (m, k): a[m * a_row + k * a_step]
  std::int64_t a_row, a_step;
  const B* b;      // element (k, n): b[k * b_stride + n]
  std::int64_t b_stride;
  float* c;        // element (m, n): c[m * c_stride + n]
  std::int64_t c_stride;
  int length;      // of the chains
  float scale = 0;                  // of Start::kScaled
  std::ptrdiff_t ahead_bytes = 0;   // bf16 only: what lies this far past each element of b is fetched into the cache
};

template <int M, int V, Start S, class B>
LOCKSTEP_INLINE void chain_tile(const ChainBlock<B>& x, int n) {
  F32 c[M][V];
  float* out = x.c + n;
  LOCKSTEP_UNROLL
  for (int m = 0; m < M; m++) {
    LOCKSTEP_UNROLL
    for (int v = 0; v < V; v++) {
      if constexpr (S == Start::kZero) c[m][v] = zero();
      else c[m][v] = load(out + m * x.c_stride + v * kLanes);
      if constexpr (S == Start::kScaled) c[m][v] = mul(c[m][v], set1(x.scale));
    }
  }
  const B* b = x.b + n;
  const float* a = x.a;
  for (int k = 0; k < x.length; k++, b += x.b_stride, a += x.a_step) {
    if constexpr (sizeof(B) == sizeof(bf16)) {
      LOCKSTEP_UNROLL
      for (int v = 0; v < V; v += 32 / kLanes) __builtin_prefetch(reinterpret_cast<const char*>(b + v * kLanes) + x.ahead_bytes);
    }
    F32 bv[V];
    LOCKSTEP_UNROLL
    for (int v = 0; v < V; v++) bv[v] = load(b + v * kLanes);
    LOCKSTEP_UNROLL
    for (int m = 0; m < M; m++) {
      const F32 am = set1(a[m * x.a_row]);
      LOCKSTEP_UNROLL
      for (int v = 0; v < V; v++) c[m][v] = fma(am, bv[v], c[m][v]);
    }
  }
  LOCKSTEP_UNROLL
  for (int m = 0; m < M; m++) {
    LOCKSTEP_UNROLL
    for (int v = 0; v < V; v++) store(out + m * x.c_stride + v * kLanes, c[m][v]);
  }
}

/// Columns [n, count), fewer than a vector.
template <Start S, class B>
inline void chain_tail(const ChainBlock<B>& x, int rows, int n, int count) {
  for (int m = 0; m < rows; m++) {
    float* out = x.c + m * x.c_stride + n;
    F32 c = S == Start::kZero ? zero() : load_first(out, count);
    if constexpr (S == Start::kScaled) c = mul(c, set1(x.scale));
    for (int k = 0; k < x.length; k++) c = fma(set1(x.a[m * x.a_row + k * x.a_step]), load_first(x.b + k * x.b_stride + n, count), c);
    store_first(out, c, count);
  }
}

template <int M, Start S, class B>
inline void chain_rows(const ChainBlock<B>& x, int columns) {
  int n = 0;
  if constexpr (M <= 2)
    for (; n + 4 * kLanes <= columns; n += 4 * kLanes) chain_tile<M, 4, S>(x, n);
  for (; n + 2 * kLanes <= columns; n += 2 * kLanes) chain_tile<M, 2, S>(x, n);
  if (n + kLanes <= columns) {
    chain_tile<M, 1, S>(x, n);
    n += kLanes;
  }
  if (n < columns) chain_tail<S>(x, M, n, columns - n);
}

/// The whole block: `rows` by `columns` chains.
template <Start S, class B>
inline void chains(ChainBlock<B> x, int rows, int columns) {
  while (rows > 0) {
    const int m = block_rows(rows);
    switch (m) {
      case 1: chain_rows<1, S>(x, columns); break;
      case 2: chain_rows<2, S>(x, columns); break;
      case 3: chain_rows<3, S>(x, columns); break;
      case 4: chain_rows<4, S>(x, columns); break;
      case 6: chain_rows<6, S>(x, columns); break;
      default:
        if constexpr (kBlockRows == 12) {
          if (m == 8) chain_rows<8, S>(x, columns);
          else chain_rows<12, S>(x, columns);
        }
    }
    rows -= m;
    x.a += m * x.a_row;
    x.c += m * x.c_stride;
  }
}

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
