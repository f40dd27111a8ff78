#include "kernels/cpu/attention.h"

#include "kernels/cpu/target.h"

#include "kernels/cpu/chains.h"
#include "kernels/cpu/math.h"

namespace lockstep::kernels::cpu {
namespace {
constexpr int kBlock = 64;  // queries (row, head) worked together, so that a tile of K and V is read once for all of them
constexpr int kTile = kAttentionTile;
}  // namespace

#if defined(LOCKSTEP_ISA_GENERIC)
std::size_t attention_scratch_floats(int rows, int heads, int head_dim) {
  const std::size_t queries = std::min<std::size_t>(kBlock, std::size_t(rows) * std::size_t(heads));
  const std::size_t dim = (std::size_t(head_dim) + 15) / 16 * 16;
  return queries * (3 * dim + kTile) + 64;  // q, o, O and p of every query
}
#endif

namespace LOCKSTEP_ISA {
namespace {

/// A block of queries on its way through the tiles.
struct Queries {
  int count = 0, dim = 0, most = 0;  // most: keys that the query with the longest view sees
  std::int64_t stride = 0;           // floats between two queries' rows of q, o, total
  float *q, *o, *total, *p;          // q, P V of the tile, O; p [count][kTile]: scores, then weights
  int keys[kBlock];                  // visible keys
  float m[kBlock], sum[kBlock];      // running maximum and L
  float tile_m[kBlock], tile_sum[kBlock];
};

LOCKSTEP_INLINE int visible(int keys, std::int64_t first, int limit) { return int(std::clamp<std::int64_t>(keys - first, 0, limit)); }

/// K (V) of the page that holds position `first`.
LOCKSTEP_INLINE const bf16* page_k(const AttentionArgs& args, std::int64_t first) {
  return reinterpret_cast<const bf16*>(args.pages[first / kPageTokens] + args.k_offset);
}
LOCKSTEP_INLINE const bf16* page_v(const AttentionArgs& args, std::int64_t first) {
  return reinterpret_cast<const bf16*>(args.pages[first / kPageTokens] + args.v_offset);
}
LOCKSTEP_INLINE std::ptrdiff_t bytes_between(const bf16* from, const bf16* to) {
  return std::ptrdiff_t(reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from));
}

/// Scores of every query with the keys of a tile: p[query][key]; keys no query of a register block sees are left out.
void score_tile(const AttentionArgs& args, Queries& x, std::int64_t tile_first) {
  for (int page = 0; page < kTile / kPageTokens; page++) {
    const std::int64_t first = tile_first + page * kPageTokens;
    if (first >= x.most) break;
    const bf16* k = page_k(args, first);
    // While a page is worked on, the one that is needed next comes from memory: K of the next page, after the tile's last V of its first.
    const bool last = page + 1 == kTile / kPageTokens || first + kPageTokens >= x.most;
    std::ptrdiff_t ahead = bytes_between(k, last ? page_v(args, tile_first) : page_k(args, first + kPageTokens));
    for (int begin = 0, n; begin < x.count; begin += n) {
      n = block_rows(x.count - begin);
      int seen = 0;
      for (int i = begin; i < begin + n; i++) seen = std::max(seen, visible(x.keys[i], first, kPageTokens));
      if (seen == 0) continue;
      const int columns = (seen + kLanes - 1) / kLanes * kLanes;
      chains<Start::kZero>(
          ChainBlock<bf16>{x.q + begin * x.stride, x.stride, 1, k, kPageTokens, x.p + std::int64_t(begin) * kTile + page * kPageTokens,
                           kTile, x.dim, 0, std::exchange(ahead, 0)},
          n, columns);
    }
  }
}

/// Scores of one query to weights p = 2^(s c - ms), ms = max(s) c; weights of keys it does not see are zero.
LOCKSTEP_INLINE float weigh(float* p, int keys, float c) {
  const F32 vc = set1(c), hidden = set1(-kInfinity);
  for (int i = keys; i < (keys + kLanes - 1) / kLanes * kLanes; i++) p[i] = -kInfinity;
  F32 top = hidden;
  const int vectors = (keys + kLanes - 1) / kLanes;
  for (int v = 0; v < vectors; v++) top = max(top, load(p + v * kLanes));
  float lanes[kLanes];
  store(lanes, top);
  float largest = lanes[0];
  for (int i = 1; i < kLanes; i++) largest = lanes[i] > largest ? lanes[i] : largest;
  const float ms = largest * c;
  for (int v = 0; v < vectors; v++) store(p + v * kLanes, exp2(sub(mul(load(p + v * kLanes), vc), set1(ms))));
  for (int v = vectors; v < kTile / kLanes; v++) store(p + v * kLanes, zero());
  return ms;
}

/// Softmax weights of a tile and their sums in order of the keys; a weight of zero adds nothing to a sum that is never -0.
void weigh_tile(const AttentionArgs& args, Queries& x, std::int64_t tile_first) {
  for (int i = 0; i < x.count; i++) {
    const int keys = visible(x.keys[i], tile_first, kTile);
    if (keys > 0) x.tile_m[i] = weigh(x.p + std::int64_t(i) * kTile, keys, args.c);
  }
  constexpr int kTogether = 8;  // chains side by side: one alone waits for every addition
  for (int begin = 0; begin < x.count; begin += kTogether) {
    const int n = std::min(kTogether, x.count - begin);
    float sum[kTogether] = {};
    const float* rows[kTogether];
    int longest = 0;
    for (int i = 0; i < kTogether; i++) {
      const int query = begin + std::min(i, n - 1);
      rows[i] = x.p + std::int64_t(query) * kTile;
      longest = std::max(longest, visible(x.keys[query], tile_first, kTile));
    }
    // A query that sees nothing of this tile has scores of its block's company here; its sum is not used.
    for (int key = 0; key < longest; key++) {
      LOCKSTEP_UNROLL
      for (int i = 0; i < kTogether; i++) sum[i] += rows[i][key];
    }
    for (int i = 0; i < n; i++) x.tile_sum[begin + i] = sum[i];
  }
}

/// o[query][dim] = sum over the visible keys of the tile in order of p v.
void value_tile(const AttentionArgs& args, Queries& x, std::int64_t tile_first) {
  for (int page = 0; page < kTile / kPageTokens; page++) {
    const std::int64_t first = tile_first + page * kPageTokens;
    if (first >= x.most) break;
    const bf16* v = page_v(args, first);
    const std::int64_t next = first + kPageTokens;
    const bool last = page + 1 == kTile / kPageTokens;
    std::ptrdiff_t ahead = next >= x.most ? 0 : bytes_between(v, last ? page_k(args, next) : page_v(args, next));
    for (int begin = 0, n; begin < x.count; begin += n) {
      n = block_rows(x.count - begin);
      int fewest = kPageTokens, most = 0;
      for (int i = begin; i < begin + n; i++) {
        const int seen = visible(x.keys[i], first, kPageTokens);
        fewest = std::min(fewest, seen);
        most = std::max(most, seen);
      }
      if (most == 0) continue;
      ChainBlock<bf16> block{x.p + std::int64_t(begin) * kTile + page * kPageTokens,
                             kTile,
                             1,
                             v,
                             x.dim,
                             x.o + begin * x.stride,
                             x.stride,
                             fewest,
                             0,
                             std::exchange(ahead, 0)};
      if (page == 0)
        chains<Start::kZero>(block, n, x.dim);
      else if (fewest > 0)
        chains<Start::kStored>(block, n, x.dim);
      for (int i = begin; i < begin + n && most > fewest; i++) {  // keys that only some of the block see
        const int seen = visible(x.keys[i], first, kPageTokens);
        if (seen == fewest) continue;
        chains<Start::kStored>(ChainBlock<bf16>{x.p + std::int64_t(i) * kTile + page * kPageTokens + fewest, kTile, 1,
                                                v + std::int64_t(fewest) * x.dim, x.dim, x.o + i * x.stride, x.stride, seen - fewest},
                               1, x.dim);
      }
    }
  }
}

/// m' = max(m, ms), a = 2^(m - m'), b = 2^(ms - m'), L = fma(l, b, L a), O = fma(o, b, O a).
void fold_tile(Queries& x, std::int64_t tile_first) {
  for (int i = 0; i < x.count; i++) {
    if (visible(x.keys[i], tile_first, kTile) == 0) continue;
    const float ms = x.tile_m[i], top = x.m[i] > ms ? x.m[i] : ms;
    const float a = exp2(x.m[i] - top), b = exp2(ms - top);
    x.m[i] = top;
    x.sum[i] = std::fma(x.tile_sum[i], b, x.sum[i] * a);
    const float* o = x.o + i * x.stride;
    float* total = x.total + i * x.stride;
    const F32 va = set1(a), vb = set1(b);
    for (int d = 0; d < x.dim; d += kLanes) store(total + d, fma(load(o + d), vb, mul(load(total + d), va)));
  }
}

void attention_rows(const AttentionArgs& args) {
  Queries x;
  x.dim = args.head_dim;
  x.stride = (args.head_dim + 15) / 16 * 16;
  const std::int64_t total = std::int64_t(args.rows) * args.heads;
  const std::int64_t block = std::min<std::int64_t>(kBlock, total);
  x.q = args.scratch;
  x.o = x.q + block * x.stride;
  x.total = x.o + block * x.stride;
  x.p = x.total + block * x.stride;
  for (std::int64_t begin = 0; begin < total; begin += kBlock) {
    x.count = int(std::min<std::int64_t>(kBlock, total - begin));
    x.most = 0;
    for (int i = 0; i < x.count; i++) {
      const std::int64_t row = (begin + i) / args.heads, head = (begin + i) % args.heads;
      map(args.q + row * args.q_row_stride + head * args.q_head_stride, x.dim, x.q + i * x.stride, [](F32 v) { return v; });
      std::fill_n(x.total + i * x.stride, x.stride, 0.0f);
      std::fill_n(x.o + i * x.stride, x.stride, 0.0f);
      x.keys[i] = args.key_counts[row];
      x.m[i] = -kInfinity;
      x.sum[i] = 0;
      x.most = std::max(x.most, x.keys[i]);
    }
    for (std::int64_t tile = 0; tile < x.most; tile += kTile) {
      score_tile(args, x, tile);
      weigh_tile(args, x, tile);
      value_tile(args, x, tile);
      fold_tile(x, tile);
    }
    for (int i = 0; i < x.count; i++) {
      const std::int64_t row = (begin + i) / args.heads, head = (begin + i) % args.heads;
      const bf16* gate = args.gate ? args.gate + row * args.gate_row_stride + head * args.gate_head_stride : nullptr;
      bf16* out = args.out + row * args.out_row_stride + head * args.out_head_stride;
      const F32 sum = set1(x.sum[i]);
      for (int d = 0; d < x.dim; d += kLanes) {
        const int n = std::min(kLanes, x.dim - d);
        F32 y = div(load(x.total + i * x.stride + d), sum);
        if (gate) y = mul(y, sigmoid(n == kLanes ? load(gate + d) : load_first(gate + d, n)));
        if (n == kLanes)
          store(out + d, y);
        else
          store_first(out + d, y, n);
      }
    }
  }
}

void store_kv_row(const bf16* k, const bf16* v, int head_dim, bf16* page_k, bf16* page_v, int slot, std::uint8_t* flag) {
  bf16* row = page_v + std::int64_t(slot) * head_dim;
  for (int d = 0; d < head_dim; d++) {
    page_k[std::int64_t(d) * kPageTokens + slot] = finite_bf16(k[d], flag);
    row[d] = finite_bf16(v[d], flag);
  }
}

}  // namespace

const AttentionKernels attention = {attention_rows, store_kv_row};

}  // namespace LOCKSTEP_ISA
}  // namespace lockstep::kernels::cpu

#include "kernels/cpu/target_end.h"
