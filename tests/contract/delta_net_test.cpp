// Gated DeltaNet against the float64 reference, against a plain scalar form of the canonical definition (kernels/ops/delta_net.h), and
// against itself: any cut of a stream into calls, windows with wrong guesses that are dropped, chunk borders anywhere.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "contract/contract.h"
#include "kernels/cpu/delta_net.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/rms_norm.h"
#include "kernels/reference/delta_net.h"

namespace lockstep::contract {
namespace {

using kernels::Isa;
using kernels::cpu::DeltaNetArgs;
using kernels::cpu::DeltaNetKernels;
using kernels::cpu::kChunk;
using kernels::cpu::kOpenSlots;

struct Dims {
  int key = 128, value = 128, heads = 2;
};

/// Rows as the mixer hands them over: q, k normalised, v, the coefficients of every value head.
struct Rows {
  Dims dims;
  int count = 0;
  std::vector<bf16> q, k, v;   // [count][key], [count][heads][value]
  std::vector<float> g, beta;  // [count][heads]

  Rows(Check& check, Dims dims, int count, double decay, bool same_keys = false) : dims(dims), count(count) {
    q.resize(std::size_t(count) * dims.key);
    k.resize(q.size());
    std::uint8_t flag = 0;
    const auto& norm = kernels::cpu::rms_norm_kernels(Isa::kGeneric).l2_norm;
    std::vector<bf16> first = check.random.bf16s(std::size_t(dims.key));
    for (int r = 0; r < count; r++) {
      const std::vector<bf16> a = check.random.bf16s(std::size_t(dims.key)),
                              b = same_keys ? first : check.random.bf16s(std::size_t(dims.key));
      norm(a.data(), dims.key, &q[std::size_t(r) * dims.key], &flag);
      norm(b.data(), dims.key, &k[std::size_t(r) * dims.key], &flag);
    }
    v = check.random.bf16s(std::size_t(count) * dims.heads * dims.value, 1.5);
    for (int i = 0; i < count * dims.heads; i++) {
      g.push_back(float(-decay * -std::log(1 - check.random.uniform())));
      beta.push_back(float(check.random.uniform()));
    }
  }
};

/// What a sequence keeps for one key head and its value heads, poisoned where nothing was written.
struct Sequence {
  Dims dims;
  std::vector<float> state, g, cum, d;
  std::vector<bf16> k;
  std::int64_t folded = 0, length = 0;
  std::vector<float> out;           // of every standing row so far
  std::vector<std::uint8_t> flags;  // of the last call

  explicit Sequence(Dims dims)
      : dims(dims),
        state(std::size_t(dims.heads) * dims.key * dims.value, 0.0f),
        g(std::size_t(kOpenSlots) * dims.heads, poison_float()),
        cum(g),
        d(std::size_t(kOpenSlots) * dims.heads * dims.value, poison_float()),
        k(std::size_t(kOpenSlots) * dims.key, kPoisonBf16) {}

  DeltaNetArgs args(std::vector<float>& scratch) {
    scratch.assign(kernels::cpu::delta_net_scratch_floats(dims.key, dims.value) + 16, poison_float());
    DeltaNetArgs a;
    a.key_dim = dims.key, a.value_dim = dims.value, a.value_heads = dims.heads;
    a.state = state.data();
    a.open_k = k.data(), a.open_k_stride = dims.key;
    a.open_g = g.data(), a.open_cum = cum.data(), a.open_g_stride = dims.heads;
    a.open_d = d.data(), a.open_d_stride = std::int64_t(dims.heads) * dims.value;
    a.folded = folded, a.length = length;
    a.scale = float(1 / std::sqrt(double(dims.key)));
    a.scratch = reinterpret_cast<float*>((reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64);
    return a;
  }
  /// `rows` from row `from` on, of which the first `stand` stand and the first `keep` are kept; outputs of all of them.
  std::vector<float> call(const DeltaNetKernels& f, const Rows& rows, int from, int count, int stand, int keep) {
    std::vector<float> scratch, result(std::size_t(count) * dims.heads * dims.value, poison_float());
    flags.assign(std::size_t(count), 0);
    DeltaNetArgs a = args(scratch);
    a.rows = count, a.stand = stand;
    std::vector<bf16> together;  // a row's q, k, v side by side
    const std::ptrdiff_t key = dims.key, value = std::ptrdiff_t(dims.heads) * dims.value;
    for (std::ptrdiff_t r = from; r < from + count; r++) {
      together.insert(together.end(), rows.q.begin() + r * key, rows.q.begin() + (r + 1) * key);
      together.insert(together.end(), rows.k.begin() + r * key, rows.k.begin() + (r + 1) * key);
      together.insert(together.end(), rows.v.begin() + r * value, rows.v.begin() + (r + 1) * value);
    }
    a.q = together.data(), a.k = a.q + key, a.v = a.k + key, a.qkv_stride = 2 * key + value;
    a.g = &rows.g[std::size_t(from) * dims.heads], a.beta = &rows.beta[std::size_t(from) * dims.heads], a.coefficient_stride = dims.heads;
    a.out = result.data(), a.out_stride = std::int64_t(dims.heads) * dims.value;
    a.row_flags = flags.data();
    f.delta_net(a);
    folded = (length + stand) / kChunk * kChunk;
    length += keep;
    out.insert(out.end(), result.begin(), result.begin() + std::int64_t(keep) * dims.heads * dims.value);
    return result;
  }
  void fold(const DeltaNetKernels& f) {
    std::vector<float> scratch;
    f.fold(args(scratch));
    folded = length / kChunk * kChunk;
  }
  /// Open rows in logical order.
  std::vector<float> open() const {
    std::vector<float> all;
    for (std::int64_t p = folded; p < length; p++) {
      const std::size_t slot = std::size_t(p % kOpenSlots);
      for (int i = 0; i < dims.key; i++) all.push_back(to_float(k[slot * dims.key + i]));
      for (int h = 0; h < dims.heads; h++) all.push_back(g[slot * dims.heads + h]), all.push_back(cum[slot * dims.heads + h]);
      for (int i = 0; i < dims.heads * dims.value; i++) all.push_back(d[slot * dims.heads * dims.value + i]);
    }
    return all;
  }
};

enum class Fault { kNone, kSubstitutesBackwards, kFoldsBackwards, kFoldsOneLate, kForgetsFirst, kReadsNext };

float exp_of(float x) {
  float y;
  kernels::cpu::elementwise_kernels(Isa::kGeneric).exp(&x, 1, &y);
  return y;
}
/// Item 7's dot of two bf16 rows.
float dot_of(const bf16* a, const bf16* b, int n) {
  float lane[16] = {};
  const auto at = [n](const bf16* x, int i) { return i < n ? to_float(x[i]) : 0.0f; };
  for (int block = 0; block < n; block += 32)
    for (int i = 0; i < 16; i++) {
      lane[i] = std::fma(at(a, block + 2 * i + 1), at(b, block + 2 * i + 1), lane[i]);
      lane[i] = std::fma(at(a, block + 2 * i), at(b, block + 2 * i), lane[i]);
    }
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; i++) lane[i] += lane[i + width];
  return lane[0] + 0.0f;
}

/// The definition, one value at a time: outputs and the state after all rows (complete chunks folded).
Sequence definition(const Rows& rows, Fault fault) {
  const Dims& dims = rows.dims;
  Sequence s(dims);
  const float scale = float(1 / std::sqrt(double(dims.key)));
  const std::size_t dk = std::size_t(dims.key), dv = std::size_t(dims.value), heads = std::size_t(dims.heads);
  s.out.assign(std::size_t(rows.count) * heads * dv, 0.0f);
  for (std::size_t h = 0; h < heads; h++) {
    float* S = &s.state[h * dk * dv];
    for (int base = 0; base < rows.count; base += kChunk) {
      const int n = std::min(kChunk, rows.count - base);
      std::vector<std::vector<float>> d(kChunk, std::vector<float>(dv));
      std::array<float, kChunk> cum{};
      const auto row = [&](int r) { return std::size_t(base + r); };
      const auto key = [&](int r) { return &rows.k[row(r) * dk]; };
      for (int r = 0; r < n; r++) {
        const float g = rows.g[row(r) * heads + h], beta = rows.beta[row(r) * heads + h];
        cum[std::size_t(r)] = r == 0 ? g : cum[std::size_t(r) - 1] + g;
        const auto decay = [&](int i) { return i == r ? 1.0f : exp_of(cum[std::size_t(r)] - cum[std::size_t(i)]); };
        const bf16* q = &rows.q[row(r) * dk];
        for (std::size_t j = 0; j < dv; j++) {
          float sk = 0, sq = 0;
          for (std::size_t i = 0; i < dk; i++)
            sk = std::fma(to_float(key(r)[i]), S[i * dv + j], sk), sq = std::fma(to_float(q[i]), S[i * dv + j], sq);
          const float carried = exp_of(cum[std::size_t(r)]);
          float& own = d[std::size_t(r)][j];
          own = beta * std::fma(-carried, sk, to_float(rows.v[(row(r) * heads + h) * dv + j]));
          for (int e = 0; e < r; e++) {
            const int i = fault == Fault::kSubstitutesBackwards ? r - 1 - e : e;
            if (fault == Fault::kForgetsFirst && i == 0) continue;
            own = std::fma(-(beta * (dot_of(key(i), key(r), dims.key) * decay(i))), d[std::size_t(i)][j], own);
          }
          float o = carried * sq;
          for (int i = 0; i <= r; i++) o = std::fma(dot_of(key(i), q, dims.key) * decay(i), d[std::size_t(i)][j], o);
          if (fault == Fault::kReadsNext && base + r + 1 < rows.count) o += 1e-3f * to_float(rows.v[((row(r) + 1) * heads + h) * dv + j]);
          s.out[(row(r) * heads + h) * dv + j] = scale * o;
        }
      }
      if (n < kChunk) {
        for (int r = 0; r < n; r++) {
          const std::size_t slot = row(r) % kOpenSlots;
          std::copy_n(key(r), dk, &s.k[slot * dk]);
          s.g[slot * heads + h] = rows.g[row(r) * heads + h], s.cum[slot * heads + h] = cum[std::size_t(r)];
          std::copy_n(d[std::size_t(r)].data(), dv, &s.d[(slot * heads + h) * dv]);
        }
        break;
      }
      const float last = cum[kChunk - 1];
      for (std::size_t i = 0; i < dk; i++)
        for (std::size_t j = 0; j < dv; j++) {
          float x = exp_of(last) * S[i * dv + j];
          for (int e = 0; e < kChunk - (fault == Fault::kFoldsOneLate); e++) {
            const int m = fault == Fault::kFoldsBackwards ? kChunk - 1 - e : e;
            x = std::fma(to_float(key(m)[i]), (m == kChunk - 1 ? 1.0f : exp_of(last - cum[std::size_t(m)])) * d[std::size_t(m)][j], x);
          }
          S[i * dv + j] = x;
        }
    }
  }
  s.length = rows.count;
  s.folded = rows.count / kChunk * kChunk;
  return s;
}

void equal(Check& check, const Sequence& got, const Sequence& want, const std::string& what) {
  check.equal_bits(got.out, want.out, what + ": outputs");
  check.equal_bits(got.state, want.state, what + ": state");
  check.equal_bits(got.open(), want.open(), what + ": open rows");
}

Sequence whole(const DeltaNetKernels& f, const Rows& rows) {
  Sequence s(rows.dims);
  s.call(f, rows, 0, rows.count, rows.count, rows.count);
  return s;
}

void against_definition(Check& check, const DeltaNetKernels& f, Fault fault) {
  for (Dims dims : {Dims{128, 128, 1}, Dims{32, 64, 2}, Dims{40, 20, 3}}) {
    const Rows rows(check, dims, dims.key == 128 ? 41 : 77, 0.4);
    equal(check, whole(f, rows), definition(rows, fault), fmt::format("{} rows of {} x {}", rows.count, dims.key, dims.value));
  }
}

/// A stream in any calls: pieces of a prompt, plain steps, windows whose first rows are right and whose others are dropped.
void cuts(Check& check, const DeltaNetKernels& f, int streams) {
  for (int stream = 0; stream < streams; stream++) {
    const Dims dims = stream % 4 == 0 ? Dims{128, 128, 2} : stream % 4 == 1 ? Dims{40, 20, 3} : Dims{32, 64, 2};
    const Rows rows(check, dims, 100, 0.4);
    Sequence want = whole(f, rows), s(dims);
    while (s.length < rows.count) {
      const int at = int(s.length), left = rows.count - at;
      const int kind = check.random.integer(0, 3);
      if (kind == 0) {
        const int n = std::min(left, check.random.integer(1, 40));
        s.call(f, rows, at, n, n, n);
      } else if (kind == 1) {
        s.call(f, rows, at, 1, 1, 1);
      } else {  // a window: root (or nothing) stands, some guesses are right, the others poisonous
        const int stand = std::min(left, check.random.integer(0, kind == 2 ? 1 : 3)),
                  n = stand + check.random.integer(stand == 0, kind == 2 ? 8 : 16);
        const int right = std::min({left, n, stand + check.random.integer(0, n - stand)});
        Rows window(check, dims, n, 0.4);
        const auto copy = [&](auto& to, const auto& from, std::size_t width) {
          std::copy_n(from.begin() + std::ptrdiff_t(width) * at, width * std::size_t(right), to.begin());
        };
        copy(window.q, rows.q, std::size_t(dims.key));
        copy(window.k, rows.k, std::size_t(dims.key));
        copy(window.v, rows.v, std::size_t(dims.heads) * dims.value);
        copy(window.g, rows.g, std::size_t(dims.heads));
        copy(window.beta, rows.beta, std::size_t(dims.heads));
        if (right < n) window.v.back() = to_bf16(NAN), window.g.back() = -INFINITY;
        s.call(f, window, 0, n, stand, right);
        for (int r = 0; r < right; r++) check.that(s.flags[std::size_t(r)] == 0, "a right row was flagged");
        if (right < n) check.that(s.flags[std::size_t(n - 1)] == 1, "a value of NaN raises its row's flag");
      }
      if (check.random.integer(0, 4) == 0) s.fold(f);
    }
    s.fold(f);
    equal(check, s, want, fmt::format("stream {} of {} x {}", stream, dims.key, dims.value));
  }
}

void accuracy(Check& check, const DeltaNetKernels& f) {
  for (int kind = 0; kind < 4; kind++) {
    const Dims dims{128, 128, 1};
    const Rows rows(check, dims, 150,
                    kind == 0   ? 0.05
                    : kind == 1 ? 1.0
                    : kind == 2 ? 8.0
                                : 0.01,
                    kind == 3);  // 3: hostile, all keys equal
    const Sequence s = whole(f, rows);
    const auto want = kernels::reference::delta_net(128, 128, 1 / std::sqrt(128.0), rows.q, rows.k, rows.v, rows.g, rows.beta);
    for (std::size_t i = 0; i < want.out.size(); i++)
      check.near(s.out[i], want.out[i], want.out_bound[i], fmt::format("kind {}, row {}", kind, i / 128), std::int64_t(i % 128));
    // The state is at row 144: compare by what it answers, the outputs of the open rows above; and at a multiple of 16 directly.
    const Rows first(check, dims, 64, 0.3, kind == 3);
    const Sequence at = whole(f, first);
    const auto state = kernels::reference::delta_net(128, 128, 1 / std::sqrt(128.0), first.q, first.k, first.v, first.g, first.beta);
    for (std::size_t i = 0; i < state.state.size(); i++)
      check.near(at.state[i], state.state[i], state.state_bound[i % 128], fmt::format("kind {}, state", kind), std::int64_t(i));
  }
}

/// A worked example: two key dimensions, three rows. Loose, since q and k are stored to bf16: it holds the meaning, not the bits.
void example(Check& check) {
  const auto& f = kernels::cpu::delta_net_kernels(check.isa);
  Dims dims{2, 2, 1};
  Rows rows(check, dims, 3, 1);
  const float q[3][2] = {{1, 2}, {.5f, -1}, {3, 0}}, k[3][2] = {{2, 1}, {1, 1}, {-1, 2}}, v[3][2] = {{1, -1}, {.5f, 2}, {-2, 1}};
  const float a[3] = {.1f, -.5f, 1}, b[3] = {0, 1, -1};
  const double want[3][2] = {
      {0.2828426559060878, -0.2828426559060878}, {-0.0367396275482404, -0.3719342761514934}, {0.2256759099502909, 0.0575571895188113}};
  const double want_g[3] = {-0.8698445071728694, -0.5442442391798044, -1.5808205484877307},
               want_beta[3] = {0.5, 0.7310585786300049, 0.2689414213699951};
  const float neg_exp_a = float(-std::exp(0.3)), dt_bias = -0.2f;
  std::uint8_t flag = 0;
  for (int r = 0; r < 3; r++) {
    bf16 raw[2];
    for (int i = 0; i < 2; i++) raw[i] = to_bf16(q[r][i]);
    kernels::cpu::rms_norm_kernels(check.isa).l2_norm(raw, 2, &rows.q[std::size_t(2 * r)], &flag);
    for (int i = 0; i < 2; i++) raw[i] = to_bf16(k[r][i]);
    kernels::cpu::rms_norm_kernels(check.isa).l2_norm(raw, 2, &rows.k[std::size_t(2 * r)], &flag);
    for (int i = 0; i < 2; i++) rows.v[std::size_t(2 * r + i)] = to_bf16(v[r][i]);
    const bf16 ha = to_bf16(a[r]), hb = to_bf16(b[r]);
    f.coefficients(&ha, &hb, &neg_exp_a, &dt_bias, 1, &rows.g[std::size_t(r)], &rows.beta[std::size_t(r)]);
    check.near(rows.g[std::size_t(r)], want_g[r], 1e-3, "example's g", r);
    check.near(rows.beta[std::size_t(r)], want_beta[r], 1e-6, "example's beta", r);
  }
  const Sequence s = whole(f, rows);
  for (int i = 0; i < 6; i++) check.near(s.out[std::size_t(i)], want[i / 2][i % 2], 4e-3, "example's output", i);
}

/// Values that are not finite stay in their row: it is flagged, its neighbours and the state are finite.
void contained(Check& check, const DeltaNetKernels& f) {
  Rows rows(check, Dims{32, 64, 2}, 40, 0.4);
  rows.v[std::size_t(5) * 128 + 3] = to_bf16(NAN);
  rows.v[std::size_t(20) * 128 + 70] = to_bf16(-INFINITY);
  rows.g[std::size_t(30) * 2] = NAN;
  rows.beta[std::size_t(33) * 2 + 1] = NAN;
  const Sequence s = whole(f, rows);
  for (int r = 0; r < rows.count; r++) {
    const bool planted = r == 5 || r == 20 || r == 30 || r == 33;
    if (planted || r < 20)
      check.that(s.flags[std::size_t(r)] == planted, fmt::format("flag of row {}", r));  // 3.3e38 may overflow in a later row
  }
  for (float x : s.state) check.that(x == x, "the state holds a NaN");
}

void borders(Check& check, const DeltaNetKernels& f) {
  const Rows rows(check, Dims{32, 64, 2}, 48, 0.4);
  const Sequence want = whole(f, rows);
  for (int start = 0; start < 32; start++)
    for (int keep : {1, 4, 9}) {
      Sequence s(rows.dims);
      if (start) s.call(f, rows, 0, start, start, start);
      s.call(f, rows, start, 9, 1, keep);
      const int rest = rows.count - start - keep;
      s.call(f, rows, start + keep, rest, rest, rest);
      equal(check, s, want, fmt::format("window at {}, {} kept", start, keep));
    }
}

const DeltaNetKernels& kernel(Isa isa) { return kernels::cpu::delta_net_kernels(isa); }

const Case accuracy_case{"delta_net", Gate::kAccuracy, [](Check& c) { accuracy(c, kernel(c.isa)); }};
const Case example_case{"delta_net", Gate::kAccuracy, "worked example", example};
const Case definition_case{"delta_net", Gate::kRows, "the definition's bits",
                           [](Check& c) { against_definition(c, kernel(c.isa), Fault::kNone); }};
const Case cuts_case{"delta_net", Gate::kRows, "any cut, wrong guesses dropped",
                     [](Check& c) { cuts(c, kernel(c.isa), c.isa == Isa::kGeneric ? 12 : 60); }};
const Case contained_case{"delta_net", Gate::kEdges, "not finite", [](Check& c) { contained(c, kernel(c.isa)); }};
const Case borders_case{"delta_net", Gate::kEdges, "windows of 9 at every place of a chunk", [](Check& c) { borders(c, kernel(c.isa)); }};
void repeat(Check& check, const DeltaNetKernels& f) {
  const Rows rows(check, Dims{}, 90, 0.4);
  const Sequence first = whole(f, rows);
  equal(check, whole(f, rows), first, "second call");
}
const Case repeat_case{"delta_net", Gate::kRepeat, [](Check& c) { repeat(c, kernel(c.isa)); }};
const Case isas_case{"delta_net", Gate::kIsas,
                     [](Check& check) {
                       for (Dims dims : {Dims{}, Dims{40, 20, 3}}) {
                         const Rows rows(check, dims, 90, 0.4);
                         const Sequence want = whole(kernel(Isa::kGeneric), rows);
                         for (Isa isa : check.isas) equal(check, whole(kernel(isa), rows), want, std::string(kernels::isa_name(isa)));
                       }
                     },
                     Scope::kOnce};

const Control forgets{"delta_net", Gate::kAccuracy, "forgets a chunk's first row",
                      [](Check& check) {
                        const Rows rows(check, Dims{128, 128, 1}, 40, 0.1);
                        const Sequence s = definition(rows, Fault::kForgetsFirst);
                        const auto want =
                            kernels::reference::delta_net(128, 128, 1 / std::sqrt(128.0), rows.q, rows.k, rows.v, rows.g, rows.beta);
                        for (std::size_t i = 0; i < want.out.size(); i++)
                          check.near(s.out[i], want.out[i], want.out_bound[i], "out", std::int64_t(i));
                      },
                      Scope::kOnce};
const Control fold_late{"delta_net", Gate::kRows, "folds one row late",
                        [](Check& c) { against_definition(c, kernel(c.isa), Fault::kFoldsOneLate); }, Scope::kOnce};
const Control backwards{"delta_net", Gate::kRows, "substitutes backwards",
                        [](Check& c) { against_definition(c, kernel(c.isa), Fault::kSubstitutesBackwards); }, Scope::kOnce};
const Control fold_back{"delta_net", Gate::kRows, "folds rows backwards",
                        [](Check& c) { against_definition(c, kernel(c.isa), Fault::kFoldsBackwards); }, Scope::kOnce};
const Control next_row{"delta_net", Gate::kRows, "reads the next row",
                       [](Check& c) { against_definition(c, kernel(c.isa), Fault::kReadsNext); }, Scope::kOnce};
const Control guess_kept{"delta_net", Gate::kRows, "a guess stays in the state",
                         [](Check& check) {
                           const Rows rows(check, Dims{32, 64, 2}, 48, 0.4);
                           const auto& f = kernel(check.isa);
                           const Sequence want = whole(f, rows);
                           Sequence s(rows.dims);
                           s.call(f, rows, 0, 10, 10, 10);
                           Rows wrong(check, rows.dims, 6, 0.4);
                           s.call(f, wrong, 0, 6, 6, 0);  // called standing, so its chunk is folded
                           s.out.resize(std::size_t(10) * 128);
                           s.call(f, rows, 10, 38, 38, 38);
                           equal(check, s, want, "stream");
                         },
                         Scope::kOnce};
/// The kernel with one thing wrong around it.
DeltaNetKernels planted(void (*rows)(const DeltaNetArgs&)) {
  DeltaNetKernels f = kernel(Isa::kGeneric);
  f.delta_net = rows;
  return f;
}
const Control remembers{"delta_net", Gate::kRepeat, "takes its scratch for zeroed in every second call",
                        [](Check& c) {
                          repeat(c, planted([](const DeltaNetArgs& a) {
                                   static int calls = 0;
                                   kernel(Isa::kGeneric).delta_net(a);
                                   if (calls++ % 2) a.out[0] += a.scratch[0] == 0 ? 0.0f : 1e-6f;
                                 }));
                        },
                        Scope::kOnce};
const Control no_flag{"delta_net", Gate::kEdges, "raises no flag",
                      [](Check& c) {
                        contained(c, planted([](const DeltaNetArgs& a) {
                                    DeltaNetArgs b = a;
                                    std::vector<std::uint8_t> unseen(static_cast<std::size_t>(a.rows));
                                    b.row_flags = unseen.data();
                                    kernel(Isa::kGeneric).delta_net(b);
                                  }));
                      },
                      Scope::kOnce};
const Control border_late{"delta_net", Gate::kEdges, "a window past a border reads the state before it",
                          [](Check& c) {
                            borders(c, planted([](const DeltaNetArgs& a) {
                                      const std::int64_t border = (a.length / kChunk + 1) * kChunk;
                                      if (a.rows <= 9 && a.stand < a.rows && a.length + a.rows > border && a.length + a.stand < border) {
                                        DeltaNetArgs head = a;
                                        head.rows = int(border - a.length);
                                        kernel(Isa::kGeneric).delta_net(head);
                                        const int left = a.rows - head.rows, first = head.rows;
                                        DeltaNetArgs tail = a;
                                        tail.folded = tail.length = border, tail.rows = left, tail.stand = 0;
                                        tail.q += first * a.qkv_stride, tail.k += first * a.qkv_stride, tail.v += first * a.qkv_stride;
                                        tail.g += first * a.coefficient_stride, tail.beta += first * a.coefficient_stride;
                                        tail.out += first * a.out_stride, tail.row_flags += first;
                                        kernel(Isa::kGeneric).delta_net(tail);
                                        return;
                                      }
                                      kernel(Isa::kGeneric).delta_net(a);
                                    }));
                          },
                          Scope::kOnce};
const Control set_order{"delta_net", Gate::kIsas, "another order of sums in one set",
                        [](Check& check) {
                          const Rows rows(check, Dims{32, 64, 2}, 50, 0.4);
                          equal(check, definition(rows, Fault::kSubstitutesBackwards), whole(kernel(check.isas.back()), rows), "sets");
                        },
                        Scope::kOnce};

}  // namespace
}  // namespace lockstep::contract
