// Attention over pages against the float64 reference, against a plain scalar form of the canonical definition (kernels/ops/attention.h),
// and against itself in other blocks, cuts and company.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "contract/contract.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/reference/attention.h"

namespace lockstep::contract {
namespace {

using kernels::Isa;
using kernels::cpu::AttentionArgs;
using kernels::cpu::AttentionKernels;
using kernels::cpu::kAttentionTile;
using kernels::cpu::kPageTokens;

float score_factor(int head_dim) { return float(1.4426950408889634 / std::sqrt(double(head_dim))); }

/// Keys and values of one head in pages, as store_kv puts them, and the query rows that read them.
struct Problem {
  int rows, heads, head_dim, keys;
  bool gated;
  std::vector<bf16> q, gate, k, v;              // [rows][heads][head_dim], [keys][head_dim]
  std::vector<std::int32_t> counts;             // [rows]
  std::vector<std::vector<std::byte>> storage;  // a page each: K, then V
  std::vector<const std::byte*> pages;

  /// `ties`: keys in pairs of equal weight whose values are bf16 neighbours, so that a row's result lies on the border between two bf16
  /// values and the last bit of any sum decides.
  Problem(Check& check, int rows, int heads, int head_dim, int keys, bool gated, bool ties = false)
      : rows(rows), heads(heads), head_dim(head_dim), keys(keys), gated(gated) {
    q = check.random.bf16s(std::size_t(rows) * heads * head_dim, 1.5);
    gate = check.random.bf16s(q.size(), 2);
    k = check.random.bf16s(std::size_t(keys) * head_dim, 1.5);
    v = check.random.wide_bf16s(k.size(), 3);
    if (ties) {
      std::fill(gate.begin(), gate.end(), to_bf16(100.0f));  // sigmoid is 1
      const std::size_t dim = std::size_t(head_dim);
      for (std::size_t d = 0; d < dim; d++) {
        for (int i = 0; i + 1 < keys; i += 2) k[(std::size_t(i) + 1) * dim + d] = k[std::size_t(i) * dim + d];
        for (int i = 0; i < keys; i++) v[std::size_t(i) * dim + d] = bf16(v[d] + i % 2);
      }
    }
    for (int r = 0; r < rows; r++) counts.push_back(std::max(1, keys - rows + 1 + r));  // causal
    fill_pages(check.isa);
  }
  void fill_pages(Isa isa) {
    const std::size_t half = std::size_t(kPageTokens) * head_dim;
    storage.clear();
    pages.clear();
    for (int p = 0; p < (keys + kPageTokens - 1) / kPageTokens; p++) {
      storage.emplace_back(2 * half * sizeof(bf16));
      std::fill_n(reinterpret_cast<bf16*>(storage.back().data()), 2 * half, kPoisonBf16);  // what was never stored must not be seen
    }
    std::uint8_t flag = 0;
    for (int i = 0; i < keys; i++) {
      bf16* page = reinterpret_cast<bf16*>(storage[std::size_t(i / kPageTokens)].data());
      kernels::cpu::attention_kernels(isa).store_kv(&k[std::size_t(i) * head_dim], &v[std::size_t(i) * head_dim], head_dim, page,
                                                    page + half, i % kPageTokens, &flag);
    }
    for (auto& s : storage) pages.push_back(s.data());
  }
  std::size_t at(int row, int head) const { return (std::size_t(row) * heads + head) * head_dim; }

  /// Rows [begin, end) in one call of `f`; heads [head, head + count).
  using Attention = void (*)(const AttentionArgs&);
  void run(Attention f, int begin, int end, int head, int count, std::vector<bf16>& out) const {
    std::vector<float> space(kernels::cpu::attention_scratch_floats(end - begin, count, head_dim) + 16, poison_float());
    AttentionArgs a;
    a.rows = end - begin, a.heads = count, a.head_dim = head_dim;
    a.q = &q[at(begin, head)];
    a.q_row_stride = std::int64_t(heads) * head_dim, a.q_head_stride = head_dim;
    if (gated) a.gate = &gate[at(begin, head)], a.gate_row_stride = a.q_row_stride, a.gate_head_stride = head_dim;
    a.pages = pages.data();
    a.k_offset = 0, a.v_offset = std::size_t(kPageTokens) * head_dim * sizeof(bf16);
    a.key_counts = &counts[std::size_t(begin)];
    a.c = score_factor(head_dim);
    a.out = &out[at(begin, head)];
    a.out_row_stride = a.q_row_stride, a.out_head_stride = head_dim;
    a.scratch = reinterpret_cast<float*>((reinterpret_cast<std::uintptr_t>(space.data()) + 63) / 64 * 64);
    f(a);
  }
  std::vector<bf16> all(Attention f) const {
    std::vector<bf16> out(q.size(), kPoisonBf16);
    run(f, 0, rows, 0, heads, out);
    return out;
  }
};

enum class Fault { kNone, kDropsLastKey, kReadsOneTooFar, kReversedSum, kOneTile, kZeroTimesMasked };

/// The definition, one value at a time. exp2 is the generic set's (held to its own contract).
void definition(const AttentionArgs& a, Fault fault) {
  const auto exp2 = [](float x) {
    float y;
    kernels::cpu::elementwise_kernels(Isa::kGeneric).exp2(&x, 1, &y);
    return y;
  };
  const auto exp = [](float x) {
    float y;
    kernels::cpu::elementwise_kernels(Isa::kGeneric).exp(&x, 1, &y);
    return y;
  };
  const int tile = fault == Fault::kOneTile ? 1 << 20 : kAttentionTile;
  const auto key = [&](int j, int d) {
    return to_float(reinterpret_cast<const bf16*>(a.pages[j / kPageTokens] + a.k_offset)[d * kPageTokens + j % kPageTokens]);
  };
  const auto value = [&](int j, int d) {
    return to_float(reinterpret_cast<const bf16*>(a.pages[j / kPageTokens] + a.v_offset)[j % kPageTokens * a.head_dim + d]);
  };
  for (int r = 0; r < a.rows; r++) {
    for (int h = 0; h < a.heads; h++) {
      const bf16* q = a.q + r * a.q_row_stride + h * a.q_head_stride;
      const int n = a.key_counts[r] - (fault == Fault::kDropsLastKey) + (fault == Fault::kReadsOneTooFar);
      float m = -std::numeric_limits<float>::infinity(), sum = 0;
      std::vector<float> total(std::size_t(a.head_dim), 0.0f);
      for (int first = 0; first < n; first += tile) {
        const int count = std::min(tile, n - first);
        std::vector<float> p(static_cast<std::size_t>(count)), o(std::size_t(a.head_dim), 0.0f);
        for (int j = 0; j < count; j++) {
          float s = 0;
          for (int d = 0; d < a.head_dim; d++) s = std::fma(to_float(q[d]), key(first + j, d), s);
          p[std::size_t(j)] = s;
        }
        const float ms = *std::max_element(p.begin(), p.end()) * a.c;
        float l = 0;
        for (float& s : p) s = exp2(s * a.c - ms);
        for (int j = 0; j < count; j++) l += p[std::size_t(fault == Fault::kReversedSum ? count - 1 - j : j)];
        for (int j = 0; j < count; j++)
          for (int d = 0; d < a.head_dim; d++) o[std::size_t(d)] = std::fma(p[std::size_t(j)], value(first + j, d), o[std::size_t(d)]);
        if (fault == Fault::kZeroTimesMasked && (first + count) % kPageTokens)
          for (float& x : o) x = std::fma(0.0f, value(first + count, int(&x - o.data())), x);
        const float top = std::max(m, ms), fa = exp2(m - top), fb = exp2(ms - top);
        m = top;
        sum = std::fma(l, fb, sum * fa);
        for (std::size_t d = 0; d < o.size(); d++) total[d] = std::fma(o[d], fb, total[d] * fa);
      }
      for (int d = 0; d < a.head_dim; d++) {
        float y = total[std::size_t(d)] / sum;
        if (a.gate) y *= 1.0f / (1.0f + exp(-to_float(a.gate[r * a.gate_row_stride + h * a.gate_head_stride + d])));
        a.out[r * a.out_row_stride + h * a.out_head_stride + d] = to_bf16(y);
      }
    }
  }
}

struct Shape {
  int heads, head_dim;
  bool gated;
};
constexpr Shape kShapes[] = {{4, 256, true}, {2, 64, false}, {1, 128, false}, {7, 80, false}, {5, 20, true}};

void accuracy(Check& check, Problem::Attention f) {
  for (const Shape& s : kShapes)
    for (int keys : {1, 2, 31, 33, 127, 128, 129, 300}) {
      const Problem p(check, std::min(2, keys), s.heads, s.head_dim, keys, s.gated);
      const std::vector<bf16> out = p.all(f);
      for (int r = 0; r < p.rows; r++)
        for (int h = 0; h < s.heads; h++) {
          const std::size_t n = std::size_t(p.counts[std::size_t(r)]) * s.head_dim, dim = std::size_t(s.head_dim);
          const auto want =
              kernels::reference::attention({&p.q[p.at(r, h)], dim}, {p.k.data(), n}, {p.v.data(), n},
                                            s.gated ? std::span<const bf16>(&p.gate[p.at(r, h)], dim) : std::span<const bf16>());
          for (std::size_t d = 0; d < dim; d++)
            check.near(to_float(out[p.at(r, h) + d]), want.out[d], bf16_ulp(std::fabs(want.out[d]) + want.bound[d]) / 2 + want.bound[d],
                       fmt::format("{} heads of {}, {} keys, row {}, head {}", s.heads, s.head_dim, keys, r, h), std::int64_t(d));
        }
    }
}

/// The definition's bits at the tile borders, and every row and head alone, in pairs and in odd cuts.
void rows(Check& check, Problem::Attention f, const std::vector<int>& key_counts) {
  bool ties = true;  // for every second length
  for (int keys : key_counts) {
    const Shape& s = kShapes[check.random.integer(0, 4)];
    const int rows = std::min(keys, keys > 600 ? 5 : 21);
    ties = !ties;
    const Problem p(check, rows, s.heads, s.head_dim, keys, s.gated, ties);
    const std::vector<bf16> whole = p.all(f), want = p.all([](const AttentionArgs& a) { definition(a, Fault::kNone); });
    const std::string what = fmt::format("{} rows, {} heads of {}, {} keys", rows, s.heads, s.head_dim, keys);
    check.equal_bits(whole, want, what + " against the definition");
    std::vector<bf16> cut(p.q.size(), kPoisonBf16);
    for (int begin = 0; begin < rows;) {
      const int end = std::min(rows, begin + check.random.integer(1, 5));
      for (int head = 0; head < s.heads;) {
        const int count = std::min(s.heads - head, check.random.integer(1, 3));
        p.run(f, begin, end, head, count, cut);
        head += count;
      }
      begin = end;
    }
    check.equal_bits(cut, whole, what + " in pieces");
  }
}

/// Rows in any order, with counts that are not ascending, beside rows of NaN and infinities.
void hostile(Check& check, Problem::Attention f) {
  Problem p(check, 29, 3, 64, 400, true);
  for (auto& n : p.counts) n = check.random.integer(1, 400);
  const std::vector<bf16> before = p.all(f);
  std::vector<bool> poisoned(std::size_t(p.rows) * 3);
  for (int r = 0; r < p.rows; r++)
    for (int h = 0; h < 3; h++)
      if (check.random.integer(0, 2) == 0) {
        poisoned[std::size_t(r) * 3 + h] = true;
        for (int d = 0; d < 64; d++) p.q[p.at(r, h) + d] = to_bf16(d % 3 == 0 ? NAN : d % 3 == 1 ? INFINITY : -3e38f);
      }
  const std::vector<bf16> after = p.all(f);
  for (int r = 0; r < p.rows; r++)
    for (int h = 0; h < 3; h++) {
      const std::size_t at = p.at(r, h);
      if (poisoned[std::size_t(r) * 3 + h])
        check.that(after[at] == 0x7fc0, "a query of NaN must give the one NaN");
      else
        check.equal_bits(std::span(after).subspan(at, 64), std::span(before).subspan(at, 64),
                         fmt::format("row {} head {} beside poison", r, h));
    }
}

void stores(Check& check, decltype(AttentionKernels::store_kv) store) {
  constexpr int kDim = 40;
  std::vector<bf16> k = check.random.bf16s(kDim), v = check.random.bf16s(kDim), page_k(kDim * kPageTokens, kPoisonBf16), page_v = page_k;
  std::uint8_t flag = 0;
  store(k.data(), v.data(), kDim, page_k.data(), page_v.data(), 7, &flag);
  check.that(flag == 0, "finite values raise no flag");
  k[3] = 0x7f80, k[4] = 0xff80, k[5] = 0x7fc0, v[6] = 0xffc1, v[39] = 0x7f80;
  store(k.data(), v.data(), kDim, page_k.data(), page_v.data(), 31, &flag);
  check.that(flag == 1, "values that are not finite raise the flag");
  const auto stored = [](bf16 x) { return x == 0x7f80 ? bf16(0x7f7f) : x == 0xff80 ? bf16(0xff7f) : (x & 0x7f80) == 0x7f80 ? bf16(0) : x; };
  for (int d = 0; d < kDim; d++)
    for (int slot = 0; slot < kPageTokens; slot++) {
      const bf16 got_k = page_k[std::size_t(d) * kPageTokens + slot], got_v = page_v[std::size_t(slot) * kDim + d];
      if (slot == 31)
        check.that(got_k == stored(k[std::size_t(d)]) && got_v == stored(v[std::size_t(d)]), fmt::format("stored values, dimension {}", d));
      else if (slot != 7)
        check.that(got_k == kPoisonBf16 && got_v == kPoisonBf16, "other slots stay");
    }
}

Problem::Attention kernel(Isa isa) { return kernels::cpu::attention_kernels(isa).attention; }

const Case accuracy_case{"attention", Gate::kAccuracy, [](Check& c) { accuracy(c, kernel(c.isa)); }};
const Case rows_case{"attention", Gate::kRows, [](Check& c) {
                       rows(c, kernel(c.isa), {1, 5, 32, 47, 127, 128, 129, 140, 256, 511, 512, 513});
                     }};
const Case hostile_case{"attention", Gate::kRows, "hostile company", [](Check& c) { hostile(c, kernel(c.isa)); }};
const Case long_case{"attention", Gate::kEdges, "2,000 keys", [](Check& c) { rows(c, kernel(c.isa), {257, 2000}); }};
const Case stores_case{"attention", Gate::kEdges, "store_kv", [](Check& c) { stores(c, kernels::cpu::attention_kernels(c.isa).store_kv); }};
const Case blocks_case{"attention", Gate::kEdges, "more queries than one block", [](Check& check) {
                         const Problem p(check, 70, 4, 64, 130, false);
                         const std::vector<bf16> whole = p.all(kernel(check.isa));
                         std::vector<bf16> alone(p.q.size(), kPoisonBf16);
                         for (int r = 0; r < p.rows; r++) p.run(kernel(check.isa), r, r + 1, 0, 4, alone);
                         check.equal_bits(whole, alone, "70 rows of 4 heads");
                       }};
void repeat(Check& check, Problem::Attention f) {
  const Problem p(check, 9, 4, 256, 700, true, true);
  check.equal_bits(p.all(f), p.all(f), "second call");
}
const Case repeat_case{"attention", Gate::kRepeat, [](Check& c) { repeat(c, kernel(c.isa)); }};
const Case isas_case{"attention", Gate::kIsas,
                     [](Check& check) {
                       for (const Shape& s : kShapes) {
                         const Problem p(check, 11, s.heads, s.head_dim, 391, s.gated, s.heads % 2 == 0);
                         const std::vector<bf16> want = p.all(kernel(Isa::kGeneric));
                         for (Isa isa : check.isas) check.equal_bits(p.all(kernel(isa)), want, kernels::isa_name(isa));
                       }
                     },
                     Scope::kOnce};

const Control drops_key{"attention", Gate::kAccuracy, "drops the last key",
                        [](Check& c) { accuracy(c, [](const AttentionArgs& a) { definition(a, Fault::kDropsLastKey); }); }, Scope::kOnce};
const Control far_key{"attention", Gate::kRows, "reads one key too far",
                      [](Check& c) {
                        rows(c, [](const AttentionArgs& a) { definition(a, Fault::kReadsOneTooFar); }, {127, 140});
                      },
                      Scope::kOnce};
const Control sum_order{"attention", Gate::kRows, "sums the weights backwards",
                        [](Check& c) {
                          rows(c, [](const AttentionArgs& a) { definition(a, Fault::kReversedSum); }, {511, 512});
                        },
                        Scope::kOnce};
const Control one_tile{"attention", Gate::kEdges, "one tile for all keys",
                       [](Check& c) {
                         rows(c, [](const AttentionArgs& a) { definition(a, Fault::kOneTile); }, {140, 513});
                       },
                       Scope::kOnce};
const Control masked{"attention", Gate::kRows, "adds 0 times the first masked value",
                     [](Check& c) {
                       rows(c, [](const AttentionArgs& a) { definition(a, Fault::kZeroTimesMasked); }, {47, 129});
                     },
                     Scope::kOnce};
const Control blind_store{"attention", Gate::kEdges, "store_kv keeps infinities",
                          [](Check& c) {
                            stores(c, [](const bf16* k, const bf16* v, int dim, bf16* page_k, bf16* page_v, int slot, std::uint8_t* flag) {
                              *flag = 1;
                              for (int d = 0; d < dim; d++) page_k[d * kPageTokens + slot] = k[d], page_v[slot * dim + d] = v[d];
                            });
                          },
                          Scope::kOnce};
const Control remembers{"attention", Gate::kRepeat, "another order of sums in every second call",
                        [](Check& c) {
                          repeat(c, [](const AttentionArgs& a) {
                            static int calls = 0;
                            definition(a, calls++ % 2 ? Fault::kReversedSum : Fault::kNone);
                          });
                        },
                        Scope::kOnce};
const Control by_count{"attention", Gate::kIsas, "another order of sums in one set",
                       [](Check& check) {
                         const Problem p(check, 11, 4, 256, 391, true, true);
                         check.equal_bits(p.all([](const AttentionArgs& a) { definition(a, Fault::kReversedSum); }),
                                          p.all(kernel(check.isas.back())), "sets");
                       },
                       Scope::kOnce};

}  // namespace
}  // namespace lockstep::contract
