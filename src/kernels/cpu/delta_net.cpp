#include "kernels/cpu/delta_net.h"

#include "kernels/cpu/target.h"

#include "kernels/cpu/chains.h"
#include "kernels/cpu/math.h"

namespace lockstep::kernels::cpu {

#if defined(LOCKSTEP_ISA_GENERIC)
// Two chunks' rows of k and q in f32 and their products, one state in scratch, and of one head <S, k>, <S, q> and the fold's weights.
std::size_t delta_net_scratch_floats(int key_dim, int value_dim) {
  const std::size_t dk = std::size_t(key_dim), dv = std::size_t(value_dim);
  return 2 * (3 * kChunk * dk + 2 * kChunk * kChunk) + dk * dv + 3 * kChunk * dv + 64;
}
#endif

namespace LOCKSTEP_ISA {
namespace {

constexpr float kMaxFinite = 3.3e38f;  // EXACTNESS item 9

/// The rows of a chunk that a call works on: row `first` to `end` of the chunk, the first being row `row` of the call.
struct Chunk {
  std::int64_t base = 0;  // position of the chunk's row 0
  int first = 0, end = 0, row = 0;
  float* k = nullptr;                  // [16][key_dim] f32, every row of the chunk so far
  float* x = nullptr;                  // [2 (end - first)][key_dim]: the new rows' k, then their q
  float *kk = nullptr, *kq = nullptr;  // [16][16]: kk[r][m] = <k_m, k_r>, m < r; kq[r][i] = <k_i, q_r>, i <= r; new rows r only
};

struct Scratch {
  Chunk chunk[2];
  float *state, *products, *weights;
};

Scratch cut(const DeltaNetArgs& args) {
  Scratch s;
  float* p = args.scratch;
  const auto take = [&p](std::int64_t n) { return std::exchange(p, p + n); };
  s.state = take(std::int64_t(args.key_dim) * args.value_dim);
  s.products = take(2 * kChunk * std::int64_t(args.value_dim));
  s.weights = take(kChunk * std::int64_t(args.value_dim));
  for (Chunk& c : s.chunk) {
    c.k = take(kChunk * std::int64_t(args.key_dim));
    c.x = take(2 * kChunk * std::int64_t(args.key_dim));
    c.kk = take(kChunk * kChunk);
    c.kq = take(kChunk * kChunk);
  }
  return s;
}

LOCKSTEP_INLINE std::int64_t slot(const Chunk& c, int r) { return (c.base + r) % kOpenSlots; }
LOCKSTEP_INLINE float* open_d(const DeltaNetArgs& args, const Chunk& c, int r, int head) {
  return args.open_d + slot(c, r) * args.open_d_stride + std::int64_t(head) * args.value_dim;
}
LOCKSTEP_INLINE void widen(const bf16* x, int n, float* out) {
  map(x, n, out, [](F32 v) { return v; });
}

/// The chunk in which row `row` of the call lies, up to its end or the call's.
void locate(const DeltaNetArgs& args, int row, Chunk& c) {
  const std::int64_t position = args.length + row;
  c.base = position / kChunk * kChunk;
  c.first = int(position - c.base);
  c.end = std::min(kChunk, c.first + args.rows - row);
  c.row = row;
}

/// Puts the new rows' k into their slots and makes what all value heads share: k, q in f32, and the products of rows.
void prepare_keys(const DeltaNetArgs& args, Chunk& c) {
  const int dk = args.key_dim, n = c.end - c.first;
  for (int r = 0; r < c.end; r++) {
    bf16* open = args.open_k + slot(c, r) * args.open_k_stride;
    if (r >= c.first) std::copy_n(args.k + std::int64_t(c.row + r - c.first) * args.qkv_stride, dk, open);
    widen(open, dk, c.k + std::int64_t(r) * dk);
  }
  for (int i = 0; i < n; i++) {
    const bf16* q = args.q + std::int64_t(c.row + i) * args.qkv_stride;
    std::copy_n(c.k + std::int64_t(c.first + i) * dk, dk, c.x + std::int64_t(i) * dk);
    widen(q, dk, c.x + std::int64_t(n + i) * dk);
    const int r = c.first + i;
    const bf16* k = args.open_k + slot(c, r) * args.open_k_stride;
    for (int m = 0; m < r; m++) c.kk[r * kChunk + m] = dot(args.open_k + slot(c, m) * args.open_k_stride, k, dk);
    for (int m = 0; m <= r; m++) c.kq[r * kChunk + m] = dot(args.open_k + slot(c, m) * args.open_k_stride, q, dk);
  }
}

/// NaN is 0, then clamped; `finite` stays true only if every lane was finite.
LOCKSTEP_INLINE F32 contain(F32 x, bool& finite) {
  if (!all(less(magnitude(x), set1(kInfinity)))) {
    finite = false;
    x = select(equal(x, x), x, zero());
  }
  return max(set1(-kMaxFinite), min(set1(kMaxFinite), x));
}

/// factors[i] = exp(cum_r - cum_i) for rows i < r of a chunk, 1 for r itself.
LOCKSTEP_INLINE void decays(const float* cum, int r, float* factors) {
  float x[kChunk] = {};
  for (int i = 0; i < r; i++) x[i] = cum[r] - cum[i];
  map(x, kChunk, factors, [](F32 v) { return exp(v); });
  factors[r] = 1.0f;
}

/// One row of a chunk for one value head, by columns.
struct RowColumns {
  const bf16* v;
  const float *sk, *sq;         // <S, k_r>, <S, q_r>
  const float* before[kChunk];  // d of the rows before it
  float *d, *out;
  int r;
  float carried, beta, scale;  // exp(G_r), beta_r
  float l[kChunk], m[kChunk];  // L_ri (i < r), M_ri (i <= r)
};

/// V vectors of columns from j on, or `count` < kLanes columns (V = 1). False if a value was not finite.
template <int V, bool Whole>
LOCKSTEP_INLINE bool row_columns(const RowColumns& x, int j, int count) {
  const auto take = [count](const auto* p) { return Whole ? load(p) : load_first(p, count); };
  bool finite = true;
  F32 d[V], o[V];
  LOCKSTEP_UNROLL
  for (int v = 0; v < V; v++) {
    const int at = j + v * kLanes;
    const F32 value = contain(take(x.v + at), finite);
    d[v] = contain(mul(set1(x.beta), fnma(set1(x.carried), take(x.sk + at), value)), finite);
    o[v] = mul(set1(x.carried), take(x.sq + at));
  }
  for (int i = 0; i < x.r; i++) {
    const F32 l = set1(x.l[i]), m = set1(x.m[i]);
    LOCKSTEP_UNROLL
    for (int v = 0; v < V; v++) {
      const F32 di = take(x.before[i] + j + v * kLanes);
      d[v] = fnma(l, di, d[v]);
      o[v] = fma(m, di, o[v]);
    }
  }
  LOCKSTEP_UNROLL
  for (int v = 0; v < V; v++) {
    const int at = j + v * kLanes;
    d[v] = contain(d[v], finite);
    o[v] = mul(set1(x.scale), fma(set1(x.m[x.r]), d[v], o[v]));
    if constexpr (Whole) {
      store(x.d + at, d[v]);
      store(x.out + at, o[v]);
    } else {
      store_first(x.d + at, d[v], count);
      store_first(x.out + at, o[v], count);
    }
  }
  return finite;
}

/// All columns of a row: d into its slot, the output into the call's.
bool finish_row(const RowColumns& x, int columns) {
  bool finite = true;
  int j = 0;
  for (; j + 4 * kLanes <= columns; j += 4 * kLanes) finite &= row_columns<4, true>(x, j, 0);
  for (; j + kLanes <= columns; j += kLanes) finite &= row_columns<1, true>(x, j, 0);
  if (j < columns) finite &= row_columns<1, false>(x, j, columns - j);
  return finite;
}

/// The new rows of a chunk for one value head, on the state at the chunk's start.
void run_rows(const DeltaNetArgs& args, const Chunk& c, int head, const float* state, float* products) {
  const int dk = args.key_dim, dv = args.value_dim, n = c.end - c.first;
  chains<Start::kZero>(ChainBlock<float>{c.x, dk, 1, state, dv, products, dv, dk}, 2 * n, dv);
  float cum[kChunk];
  for (int r = 0; r < c.first; r++) cum[r] = args.open_cum[slot(c, r) * args.open_g_stride + head];
  for (int r = c.first; r < c.end; r++) {
    const int i = r - c.first;
    const std::int64_t row = c.row + i;
    float g = args.g[row * args.coefficient_stride + head];
    bool finite = g - g == 0;
    if (!finite) g = -1e4f;  // forgets all, as the coefficient's own floor does
    cum[r] = r == 0 ? g : cum[r - 1] + g;
    args.open_g[slot(c, r) * args.open_g_stride + head] = g;
    args.open_cum[slot(c, r) * args.open_g_stride + head] = cum[r];
    float factors[kChunk];
    decays(cum, r, factors);
    RowColumns x;
    x.v = args.v + row * args.qkv_stride + std::int64_t(head) * dv;
    x.sk = products + std::int64_t(i) * dv;
    x.sq = products + std::int64_t(n + i) * dv;
    for (int e = 0; e < r; e++) x.before[e] = open_d(args, c, e, head);
    x.d = open_d(args, c, r, head);
    x.out = args.out + row * args.out_stride + std::int64_t(head) * dv;
    x.r = r;
    x.carried = exp(cum[r]);
    x.beta = args.beta[row * args.coefficient_stride + head];
    x.scale = args.scale;
    for (int e = 0; e < r; e++) x.l[e] = x.beta * (c.kk[r * kChunk + e] * factors[e]);
    for (int e = 0; e <= r; e++) x.m[e] = c.kq[r * kChunk + e] * factors[e];
    if (!finish_row(x, dv)) finite = false;
    if (!finite) __atomic_store_n(args.row_flags + row, std::uint8_t(1), __ATOMIC_RELAXED);  // heads share it
  }
}

/// S = exp(G_15) S, then S = fma(k_i, D_15,i d_i, S) row by row; every row of the chunk is open.
void fold_chunk(const DeltaNetArgs& args, const Chunk& c, int head, float* state, float* weights) {
  const int dk = args.key_dim, dv = args.value_dim;
  float cum[kChunk], factors[kChunk];
  for (int r = 0; r < kChunk; r++) cum[r] = args.open_cum[slot(c, r) * args.open_g_stride + head];
  decays(cum, kChunk - 1, factors);
  for (int r = 0; r < kChunk; r++) {
    const F32 factor = set1(factors[r]);
    const float* d = open_d(args, c, r, head);
    float* w = weights + std::int64_t(r) * dv;
    int j = 0;
    for (; j + kLanes <= dv; j += kLanes) store(w + j, mul(factor, load(d + j)));
    if (j < dv) store_first(w + j, mul(factor, load_first(d + j, dv - j)), dv - j);
  }
  chains<Start::kScaled>(ChainBlock<float>{c.k, 1, dk, weights, dv, state, dv, kChunk, exp(cum[kChunk - 1])}, dk, dv);
}

LOCKSTEP_INLINE float* head_state(const DeltaNetArgs& args, int head) {
  return args.state + std::int64_t(head) * args.key_dim * args.value_dim;
}

/// Complete chunks of the rows that stood at entry.
void fold_standing(const DeltaNetArgs& args) {
  Scratch s = cut(args);
  Chunk& c = s.chunk[0];
  for (c.base = args.folded; c.base + kChunk <= args.length; c.base += kChunk) {
    for (int r = 0; r < kChunk; r++)
      widen(args.open_k + slot(c, r) * args.open_k_stride, args.key_dim, c.k + std::int64_t(r) * args.key_dim);
    for (int head = 0; head < args.value_heads; head++) fold_chunk(args, c, head, head_state(args, head), s.weights);
  }
}

void delta_net_rows(const DeltaNetArgs& args) {
  fold_standing(args);
  Scratch s = cut(args);
  for (int row = 0; row < args.rows;) {
    Chunk& c = s.chunk[0];
    locate(args, row, c);
    prepare_keys(args, c);
    const int next = row + c.end - c.first;
    const bool complete = c.end == kChunk, stands = next <= args.stand;
    if (complete && !stands && next < args.rows) {
      // Rows past a border that does not stand read a folded state in scratch. At most 16 rows do not stand: no second border is passed.
      Chunk& after = s.chunk[1];
      locate(args, next, after);
      prepare_keys(args, after);
      for (int head = 0; head < args.value_heads; head++) {
        run_rows(args, c, head, head_state(args, head), s.products);
        std::copy_n(head_state(args, head), std::int64_t(args.key_dim) * args.value_dim, s.state);
        fold_chunk(args, c, head, s.state, s.weights);
        run_rows(args, after, head, s.state, s.products);
      }
      return;
    }
    for (int head = 0; head < args.value_heads; head++) {
      run_rows(args, c, head, head_state(args, head), s.products);
      if (complete && stands) fold_chunk(args, c, head, head_state(args, head), s.weights);
    }
    row = next;
  }
}

LOCKSTEP_INLINE F32 convolved(const bf16* const rows[kConvTaps], const float* taps, std::int64_t channels, std::int64_t at, int n) {
  F32 sum = zero();
  for (int t = 0; t < kConvTaps; t++) {
    const F32 x = rows[t] ? (n == kLanes ? load(rows[t] + at) : load_first(rows[t] + at, n)) : zero();
    const float* tap = taps + t * channels + at;
    sum = fma(n == kLanes ? load(tap) : load_first(tap, n), x, sum);
  }
  return silu(sum);
}

void conv_silu_rows(const ConvArgs& args) {
  for (int r = 0; r < args.rows; r++) {
    const bf16* rows[kConvTaps];  // oldest first
    for (int t = 0; t < kConvTaps; t++) {
      const int from = r + t - (kConvTaps - 1);
      const std::int64_t position = args.position + from;
      if (from >= 0)
        rows[t] = args.raw + from * args.raw_stride;
      else
        rows[t] = position >= 0 ? args.ring + position % kRawSlots * args.channels : nullptr;
    }
    bf16* out = args.out + r * args.out_stride;
    int i = args.channel_begin;
    for (; i + kLanes <= args.channel_end; i += kLanes) store(out + i, convolved(rows, args.taps, args.channels, i, kLanes));
    if (const int n = args.channel_end - i; n > 0) store_first(out + i, convolved(rows, args.taps, args.channels, i, n), n);
  }
}

void coefficients_row(const bf16* a, const bf16* b, const float* neg_exp_a, const float* dt_bias, int heads, float* g, float* beta) {
  for (int i = 0; i < heads; i += kLanes) {
    const int n = std::min(kLanes, heads - i);
    const F32 s = add(load_first(a + i, n), load_first(dt_bias + i, n));
    const F32 decay = mul(load_first(neg_exp_a + i, n), softplus(s));
    store_first(g + i, max(set1(-1e4f), decay), n);  // a NaN stays one: the delta rule raises its row's flag
    store_first(beta + i, sigmoid(load_first(b + i, n)), n);
  }
}

}  // namespace

const DeltaNetKernels delta_net = {conv_silu_rows, coefficients_row, delta_net_rows, fold_standing};

}  // namespace LOCKSTEP_ISA
}  // namespace lockstep::kernels::cpu

#include "kernels/cpu/target_end.h"
