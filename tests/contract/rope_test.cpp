// Head norm and rotation (kernels/ops/rope.h) and the table of angles (kernels/rope_table.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "contract/contract.h"
#include "kernels/cpu/rope.h"
#include "kernels/reference/rope.h"
#include "kernels/rope_table.h"

namespace lockstep::contract {
namespace {

using kernels::Isa;
using kernels::RopeScaling;
using NormRope = decltype(kernels::cpu::RopeKernels::norm_rope);
NormRope kernel(Isa isa) { return kernels::cpu::rope_kernels(isa).norm_rope; }

struct Shape {
  int head_dim, rotary_dim;
  bool normed;
};
constexpr Shape kShapes[] = {{256, 64, true}, {64, 64, false}, {128, 128, true}, {128, 128, false}, {80, 40, true}, {20, 14, false}};

struct Head {
  std::vector<bf16> x;
  std::vector<float> weight, cos, sin;
  Shape shape;
  Head(Check& check, Shape s) : shape(s) {
    x = check.random.wide_bf16s(std::size_t(s.head_dim), 2);
    weight = check.random.normals(x.size());
    for (int i = 0; i < s.rotary_dim / 2; i++) {
      const double angle = check.random.uniform(0, 6.3);
      cos.push_back(float(std::cos(angle))), sin.push_back(float(std::sin(angle)));
    }
  }
  /// Output with poison around input, output and table; `in_place`: out is x.
  std::vector<bf16> run(Check& check, NormRope f, bool in_place = false) const {
    constexpr std::size_t kMargin = 20;
    std::vector<bf16> px(x.size() + 2 * kMargin, kPoisonBf16), out = px;
    std::vector<float> c(cos.size() + 2 * kMargin, poison_float()), s = c, w(x.size() + 2 * kMargin, poison_float());
    std::copy(x.begin(), x.end(), px.begin() + kMargin);
    std::copy(cos.begin(), cos.end(), c.begin() + kMargin);
    std::copy(sin.begin(), sin.end(), s.begin() + kMargin);
    std::copy(weight.begin(), weight.end(), w.begin() + kMargin);
    std::vector<bf16>& to = in_place ? px : out;
    f(&px[kMargin], shape.normed ? &w[kMargin] : nullptr, shape.head_dim, 1e-6f, &c[kMargin], &s[kMargin], shape.rotary_dim, &to[kMargin]);
    for (std::size_t i = 0; i < kMargin; i++)
      check.that(to[i] == kPoisonBf16 && to[to.size() - 1 - i] == kPoisonBf16, "wrote outside of the head");
    return {to.begin() + kMargin, to.end() - kMargin};
  }
};

void accuracy(Check& check, NormRope f) {
  for (const Shape& s : kShapes)
    for (int repeat = 0; repeat < 20; repeat++) {
      const Head h(check, s);
      const std::vector<bf16> out = h.run(check, f);
      const std::span<const float> weight = s.normed ? std::span<const float>(h.weight) : std::span<const float>();
      const auto want = kernels::reference::norm_rope(h.x, weight, 1e-6, h.cos, h.sin),
                 plain = kernels::reference::norm_rope(h.x, weight, 1e-6, {}, {});
      const double relative = 0x1p-24 * ((s.normed ? (s.head_dim / 16.0 + 6) / 2 + 5 : 0) + 2);
      const int half = s.rotary_dim / 2;
      for (int i = 0; i < s.head_dim; i++) {
        const double a = std::fabs(plain[std::size_t(i)]);
        const double size = i >= s.rotary_dim ? a
                                              : a * std::fabs(h.cos[std::size_t(i % half)]) +
                                                    std::fabs(plain[std::size_t((i + half) % s.rotary_dim)] * h.sin[std::size_t(i % half)]);
        const double exact = want[std::size_t(i)], bound = relative * size + 0x1p-126;
        check.near(to_float(out[std::size_t(i)]), exact, bf16_ulp(std::fabs(exact) + bound) / 2 + bound,
                   fmt::format("head of {}, rotary {}", s.head_dim, s.rotary_dim), i);
      }
    }
}

enum class Fault { kNone, kPairs, kUnfused, kLastAngle };
template <Fault fault>
void definition(const bf16* x, const float* weight, int head_dim, float eps, const float* cos, const float* sin, int rotary_dim,
                bf16* out) {
  std::vector<float> y(static_cast<std::size_t>(head_dim));
  float inv = 1;
  if (weight) {
    float lane[16] = {};
    const auto at = [&](int i) { return i < head_dim ? to_float(x[i]) : 0.0f; };
    for (int block = 0; block < head_dim; block += 32)
      for (int i = 0; i < 16; i++)
        for (int odd : {1, 0}) lane[i] = std::fma(at(block + 2 * i + odd), at(block + 2 * i + odd), lane[i]);
    for (int width = 8; width > 0; width /= 2)
      for (int i = 0; i < width; i++) lane[i] += lane[i + width];
    inv = 1.0f / std::sqrt((lane[0] + 0.0f) / float(head_dim) + eps);
  }
  for (int i = 0; i < head_dim; i++) y[std::size_t(i)] = weight ? (to_float(x[i]) * inv) * weight[i] : to_float(x[i]);
  const int half = rotary_dim / 2;
  for (int i = 0; i < half; i++) {
    const int first = fault == Fault::kPairs ? 2 * i : i, second = fault == Fault::kPairs ? 2 * i + 1 : half + i;
    const int j = fault == Fault::kLastAngle && i == half - 1 ? i - 1 : i;
    const float a = y[std::size_t(first)], b = y[std::size_t(second)], c = cos[j], s = sin[j];
    out[first] = to_bf16(fault == Fault::kUnfused ? a * c - b * s : std::fma(a, c, -(b * s)));
    out[second] = to_bf16(fault == Fault::kUnfused ? b * c + a * s : std::fma(b, c, a * s));
  }
  for (int i = rotary_dim; i < head_dim; i++) out[i] = to_bf16(y[std::size_t(i)]);
}

void rows(Check& check, NormRope f, int repeats) {
  for (const Shape& s : kShapes)
    for (int repeat = 0; repeat < repeats; repeat++) {
      const Head h(check, s);
      check.equal_bits(h.run(check, f), h.run(check, definition<Fault::kNone>),
                       fmt::format("head of {}, rotary {}", s.head_dim, s.rotary_dim));
    }
}

/// sin and cos against long double libm at the f32 angle; angles up to 262,144.
void table(Check& check, const kernels::RopeTable& t, const std::vector<float>& inverse, std::int64_t stride) {
  const int half = t.rotary_dim / 2;
  for (std::int64_t p = 0; p < t.positions; p += p < 300 ? 1 : stride)
    for (int j = 0; j < half; j++) {
      const float angle = float(p) * inverse[std::size_t(j)];
      const double s = double(sinl(angle)), c = double(cosl(angle));
      const auto bound = [](double x) { return 0x1p-24 * std::exp2(std::floor(std::log2(std::fabs(x) + 1e-11))) + 1e-11; };
      check.near(t.sin[std::size_t(p * half + j)], s, bound(s), fmt::format("sin({:.9g})", angle));
      check.near(t.cos[std::size_t(p * half + j)], c, bound(c), fmt::format("cos({:.9g})", angle));
    }
}

void frequencies(Check& check) {
  const auto at = [&](const std::vector<float>& f, int j, double want) {
    check.that(f[std::size_t(j)] == float(want), fmt::format("frequency {}: {:.9g} instead of {:.9g}", j, f[std::size_t(j)], float(want)));
  };
  const auto qwen = kernels::rope_inverse_frequencies(64, 1e7, {});
  at(qwen, 0, 1), at(qwen, 1, 0.6042963902381329), at(qwen, 2, 0.3651741272548377), at(qwen, 31, 1.6548170999431814e-07);
  RopeScaling llama{RopeScaling::Type::kLlama3, 8, 1, 4, 8192};
  const auto l31 = kernels::rope_inverse_frequencies(128, 5e5, llama);
  at(l31, 28, 0.003211445994752591), at(l31, 29, 0.002166570763503359), at(l31, 31, 0.0008567514129196321);
  at(l31, 34, 0.0001785078127679964), at(l31, 35, 9.556212353964683e-05), at(l31, 63, 3.068925988914511e-07);
  llama.factor = 32;
  const auto l32 = kernels::rope_inverse_frequencies(64, 5e5, llama);
  at(l32, 14, 0.003211445994752591), at(l32, 15, 0.001290547928209264), at(l32, 17, 9.70828780262767e-05),
      at(l32, 18, 1.9461638184831125e-05), at(l32, 31, 9.41830672543491e-08);
  const auto linear = kernels::rope_inverse_frequencies(64, 1e7, {RopeScaling::Type::kLinear, 4});
  for (int j = 0; j < 32; j++) at(linear, j, double(qwen[std::size_t(j)]) / 4);
}

const Case accuracy_case{"rope", Gate::kAccuracy, [](Check& c) { accuracy(c, kernel(c.isa)); }};
const Case frequencies_case{"rope", Gate::kAccuracy, "inverse frequencies", frequencies, Scope::kOnce};
const Case table_case{"rope", Gate::kAccuracy, "table of angles",
                      [](Check& check) {
                        table(check, kernels::make_rope_table(64, 1e7, {}, 262144), kernels::rope_inverse_frequencies(64, 1e7, {}), 97);
                        const RopeScaling llama{RopeScaling::Type::kLlama3, 32, 1, 4, 8192};
                        table(check, kernels::make_rope_table(64, 5e5, llama, 4096), kernels::rope_inverse_frequencies(64, 5e5, llama), 5);
                      },
                      Scope::kOnce};
const Case bits_case{"rope", Gate::kRepeat, "the table's bits stay, with the instruction and with the library's fma",
                     [](Check& check) {
                       for (const bool instruction : {true, false}) {
                         const auto t = kernels::make_rope_table(64, 1e7, {}, 32768, instruction);
                         std::uint64_t hash = 0xcbf29ce484222325ull;
                         for (const auto* values : {&t.cos, &t.sin})
                           for (float v : *values) hash = (hash ^ std::bit_cast<std::uint32_t>(v)) * 0x100000001b3ull;
                         check.that(hash == 0xa057462b0249da65ull, fmt::format("hash of the table is {:#x}", hash));
                       }
                     },
                     Scope::kOnce};
const Case rows_case{"rope", Gate::kRows, [](Check& c) { rows(c, kernel(c.isa), 30); }};
void in_place(Check& check, NormRope f) {
  for (const Shape& s : kShapes) {
    const Head h(check, s);
    check.equal_bits(h.run(check, f, true), h.run(check, f), fmt::format("head of {} in place", s.head_dim));
  }
}
void repeat(Check& check, NormRope f) {
  for (const Shape& s : kShapes) {
    const Head h(check, s);
    const auto first = h.run(check, f);
    check.equal_bits(h.run(check, f), first, "second call");
  }
}
const Case edges_case{"rope", Gate::kEdges, "in place", [](Check& c) { in_place(c, kernel(c.isa)); }};
const Case repeat_case{"rope", Gate::kRepeat, [](Check& c) { repeat(c, kernel(c.isa)); }};
const Case isas_case{"rope", Gate::kIsas,
                     [](Check& check) {
                       for (const Shape& s : kShapes)
                         for (int repeat = 0; repeat < 30; repeat++) {
                           const Head h(check, s);
                           for (Isa isa : check.isas)
                             check.equal_bits(h.run(check, kernel(isa)), h.run(check, kernel(Isa::kGeneric)), kernels::isa_name(isa));
                         }
                     },
                     Scope::kOnce};

const Control pairs{"rope", Gate::kAccuracy, "rotates neighbours instead of halves",
                    [](Check& c) { accuracy(c, definition<Fault::kPairs>); }, Scope::kOnce};
const Control last_angle{"rope", Gate::kRows, "the last pair takes its neighbour's angle",
                         [](Check& c) { rows(c, definition<Fault::kLastAngle>, 1); }, Scope::kOnce};
const Control half_first{
    "rope", Gate::kEdges, "writes the first half before it reads it for the second",
    [](Check& c) {
      in_place(c, [](const bf16* x, const float*, int head_dim, float, const float* cos, const float* sin, int rotary_dim, bf16* out) {
        const int half = rotary_dim / 2;
        for (int i = 0; i < half; i++) out[i] = to_bf16(to_float(x[i]) * cos[i] - to_float(x[half + i]) * sin[i]);
        for (int i = 0; i < half; i++) out[half + i] = to_bf16(to_float(x[half + i]) * cos[i] + to_float(x[i]) * sin[i]);
        for (int i = rotary_dim; i < head_dim; i++) out[i] = x[i];
      });
    },
    Scope::kOnce};
const Control remembers{
    "rope", Gate::kRepeat, "neighbours instead of halves in every second call",
    [](Check& c) {
      repeat(c, [](const bf16* x, const float* w, int head_dim, float eps, const float* cos, const float* sin, int rotary_dim, bf16* out) {
        static int calls = 0;
        (calls++ % 2 ? definition<Fault::kPairs> : definition<Fault::kNone>)(x, w, head_dim, eps, cos, sin, rotary_dim, out);
      });
    },
    Scope::kOnce};
const Control unfused{"rope", Gate::kIsas, "one set without fused steps", [](Check& c) { rows(c, definition<Fault::kUnfused>, 5000); },
                      Scope::kOnce};
const Control one_position{"rope", Gate::kAccuracy, "table off by one position",
                           [](Check& check) {
                             auto t = kernels::make_rope_table(64, 1e7, {}, 400);
                             t.sin.erase(t.sin.begin(), t.sin.begin() + 32), t.cos.erase(t.cos.begin(), t.cos.begin() + 32);
                             t.positions--;
                             table(check, t, kernels::rope_inverse_frequencies(64, 1e7, {}), 1);
                           },
                           Scope::kOnce};

}  // namespace
}  // namespace lockstep::contract
