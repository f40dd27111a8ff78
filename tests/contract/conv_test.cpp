// Convolution with SiLU, and the coefficients of DeltaNet (kernels/ops/delta_net.h). sigmoid and softplus themselves: math_test.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "contract/contract.h"
#include "kernels/cpu/delta_net.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/reference/delta_net.h"
#include "kernels/reference/elementwise.h"

namespace lockstep::contract {
namespace {

using kernels::Isa;
using kernels::cpu::ConvArgs;
using kernels::cpu::kConvTaps;
using kernels::cpu::kRawSlots;
using Conv = decltype(kernels::cpu::DeltaNetKernels::conv_silu);
Conv kernel(Isa isa) { return kernels::cpu::delta_net_kernels(isa).conv_silu; }

struct Stream {
  int rows, channels;
  std::vector<bf16> raw;    // [rows][channels]
  std::vector<float> taps;  // [kConvTaps][channels]
  Stream(Check& check, int rows, int channels) : rows(rows), channels(channels) {
    raw = check.random.wide_bf16s(std::size_t(rows) * channels, 2);
    taps = check.random.normals(std::size_t(kConvTaps) * channels, 0.5);
  }
  /// The rows in calls of the given sizes, channels in two parts, the ring kept as the mixer keeps it.
  std::vector<bf16> run(Conv f, const std::vector<int>& sizes) const {
    std::vector<bf16> ring(std::size_t(kRawSlots) * channels, kPoisonBf16), out(raw.size(), kPoisonBf16);
    std::int64_t position = 0;
    for (int n : sizes) {
      ConvArgs a;
      a.rows = n, a.channels = channels, a.position = position;
      a.raw = &raw[std::size_t(position) * channels], a.raw_stride = channels;
      a.ring = ring.data(), a.taps = taps.data();
      a.out = &out[std::size_t(position) * channels], a.out_stride = channels;
      const int split = channels / 3;
      a.channel_begin = 0, a.channel_end = split;
      f(a);
      a.channel_begin = split, a.channel_end = channels;
      f(a);
      for (int r = 0; r < n; r++)
        std::copy_n(a.raw + std::int64_t(r) * channels, channels, &ring[std::size_t((position + r) % kRawSlots) * channels]);
      position += n;
    }
    return out;
  }
  std::vector<bf16> whole(Conv f) const { return run(f, {rows}); }
};

void accuracy(Check& check, Conv f) {
  const Stream s(check, 20, 300);
  const std::vector<bf16> out = s.whole(f);
  for (int r = 0; r < s.rows; r++)
    for (int c = 0; c < s.channels; c++) {
      std::array<double, kConvTaps> taps, x;
      double size = 0;
      for (int t = 0; t < kConvTaps; t++) {
        const int from = r + t - (kConvTaps - 1);
        taps[std::size_t(t)] = s.taps[std::size_t(t) * s.channels + c];
        x[std::size_t(t)] = from < 0 ? 0.0 : double(to_float(s.raw[std::size_t(from) * s.channels + c]));
        size += std::fabs(taps[std::size_t(t)] * x[std::size_t(t)]);
      }
      const double want = kernels::reference::conv_silu(taps, x),
                   bound = 0x1p-24 * (5 * std::fabs(want) + 1.1 * 4 * size) + 3e-37;  // |silu'| <= 1.1
      check.near(to_float(out[std::size_t(r) * s.channels + c]), want, bf16_ulp(std::fabs(want) + bound) / 2 + bound,
                 fmt::format("row {}", r), c);
    }
}

void cuts(Check& check, Conv f, Conv whole) {
  for (int repeat = 0; repeat < 10; repeat++) {
    const Stream s(check, 60, 37 + 32 * repeat);
    std::vector<int> sizes;
    for (int left = s.rows; left > 0; left -= sizes.back()) sizes.push_back(std::min(left, check.random.integer(1, repeat < 5 ? 3 : 25)));
    check.equal_bits(s.run(f, sizes), s.whole(whole), fmt::format("{} channels in {} calls", s.channels, sizes.size()));
  }
}

void definition(const ConvArgs& a, bool newest_first, bool stale_ring) {
  for (int r = 0; r < a.rows; r++)
    for (int c = a.channel_begin; c < a.channel_end; c++) {
      float sum = 0;
      for (int e = 0; e < kConvTaps; e++) {
        const int t = newest_first ? kConvTaps - 1 - e : e, from = r + t - (kConvTaps - 1);
        const std::int64_t position = a.position + from;
        const float x = from >= 0       ? to_float(a.raw[from * a.raw_stride + c])
                        : position >= 0 ? to_float(a.ring[(position + (stale_ring ? kRawSlots - 1 : 0)) % kRawSlots * a.channels + c])
                                        : 0.0f;
        sum = std::fma(a.taps[std::int64_t(t) * a.channels + c], x, sum);
      }
      float e, minus = -sum;
      kernels::cpu::elementwise_kernels(Isa::kGeneric).exp(&minus, 1, &e);
      a.out[r * a.out_stride + c] = to_bf16(sum / (1.0f + e));
    }
}
void right(const ConvArgs& a) { definition(a, false, false); }
void newest_first(const ConvArgs& a) { definition(a, true, false); }
void stale_ring(const ConvArgs& a) { definition(a, false, true); }

using Coefficients = decltype(kernels::cpu::DeltaNetKernels::coefficients);
Coefficients coefficient_kernel(Isa isa) { return kernels::cpu::delta_net_kernels(isa).coefficients; }

/// g and beta of a row of any number of heads, against the reference and alone.
void coefficients(Check& check, Coefficients f) {
  for (int heads : {1, 4, 16, 32, 48, 37}) {
    const std::size_t n = std::size_t(heads);
    const std::vector<bf16> a = check.random.wide_bf16s(n, 3), b = check.random.wide_bf16s(n, 3);
    std::vector<float> neg(n), bias = check.random.normals(n, 2), g(n + 8, poison_float()), beta = g;
    for (float& x : neg) x = -float(std::exp(check.random.uniform(-5, 3)));
    f(a.data(), b.data(), neg.data(), bias.data(), heads, g.data(), beta.data());
    for (std::size_t i = 0; i < n; i++) {
      // The sum a + dt_bias is rounded before softplus, which may magnify that where the sum is below zero: relative by its size.
      const double s = double(to_float(a[i])) + bias[i], want = kernels::reference::decay(to_float(a[i]), neg[i], bias[i]);
      check.near(g[i], want, 0x1p-24 * (12 + std::fabs(s)) * std::fabs(want) + 0x1p-120, "g", std::int64_t(i));
      float alone_g, alone_beta;
      f(&a[i], &b[i], &neg[i], &bias[i], 1, &alone_g, &alone_beta);
      check.that(std::bit_cast<std::uint32_t>(alone_g) == std::bit_cast<std::uint32_t>(g[i]) && alone_beta == beta[i], "a head alone");
    }
    for (std::size_t i = n; i < g.size(); i++)
      check.that(std::bit_cast<std::uint32_t>(g[i]) == kPoisonBits && std::bit_cast<std::uint32_t>(beta[i]) == kPoisonBits,
                 "wrote too far");
  }
  const bf16 a[3] = {to_bf16(1e30f), to_bf16(NAN), to_bf16(-INFINITY)}, b[3] = {to_bf16(INFINITY), to_bf16(-INFINITY), to_bf16(NAN)};
  const float neg[3] = {-1, -1, -1}, bias[3] = {};
  float g[3], beta[3];
  f(a, b, neg, bias, 3, g, beta);
  check.that(g[0] == -1e4f && std::isnan(g[1]) && g[2] == 0, "g is at least -1e4, NaN for NaN");
  check.that(beta[0] == 1 && beta[1] == 0 && std::isnan(beta[2]), "beta of infinities and NaN");
}

const Case accuracy_case{"conv_silu", Gate::kAccuracy, [](Check& c) { accuracy(c, kernel(c.isa)); }};
const Case cuts_case{"conv_silu", Gate::kRows, [](Check& c) { cuts(c, kernel(c.isa), kernel(c.isa)); }};
const Case definition_case{"conv_silu", Gate::kRows, "the definition's bits", [](Check& c) { cuts(c, kernel(c.isa), right); }};
void repeat(Check& check, Conv f) {
  const Stream s(check, 9, 700);
  const auto first = s.whole(f);
  check.equal_bits(s.whole(f), first, "second call");
}
void widths(Check& check, Conv f) {
  for (int channels = 1; channels <= 70; channels++) {
    const Stream s(check, 5, channels);
    check.equal_bits(s.whole(f), s.whole(right), fmt::format("{} channels", channels));
  }
}
const Case repeat_case{"conv_silu", Gate::kRepeat, [](Check& c) { repeat(c, kernel(c.isa)); }};
const Case edges_case{"conv_silu", Gate::kEdges, "every narrow width", [](Check& c) { widths(c, kernel(c.isa)); }};
const Case isas_case{"conv_silu", Gate::kIsas,
                     [](Check& check) {
                       const Stream s(check, 30, 1000);
                       for (Isa isa : check.isas)
                         check.equal_bits(s.whole(kernel(isa)), s.whole(kernel(Isa::kGeneric)), kernels::isa_name(isa));
                     },
                     Scope::kOnce};
void same_coefficients(Check& check, Coefficients f, std::string_view what) {
  const std::vector<bf16> a = check.random.wide_bf16s(999, 4), b = check.random.wide_bf16s(999, 4);
  const std::vector<float> neg = check.random.normals(999), bias = check.random.normals(999);
  std::vector<float> want_g(999), want_beta(999), g(999), beta(999);
  coefficient_kernel(Isa::kGeneric)(a.data(), b.data(), neg.data(), bias.data(), 999, want_g.data(), want_beta.data());
  f(a.data(), b.data(), neg.data(), bias.data(), 999, g.data(), beta.data());
  check.equal_bits(g, want_g, what);
  check.equal_bits(beta, want_beta, what);
}
/// exp by the platform, softplus without log1p.
void naive_coefficients(const bf16* a, const bf16* b, const float* neg, const float* bias, int heads, float* g, float* beta) {
  for (int i = 0; i < heads; i++) {
    g[i] = std::max(-1e4f, neg[i] * std::log(1.0f + std::exp(to_float(a[i]) + bias[i])));
    beta[i] = 1.0f / (1.0f + std::exp(-to_float(b[i])));
  }
}

const Case coefficients_case{"coefficients", Gate::kAccuracy, [](Check& c) { coefficients(c, coefficient_kernel(c.isa)); }};
const Case coefficients_isas{"coefficients", Gate::kIsas,
                             [](Check& c) {
                               for (Isa isa : c.isas) same_coefficients(c, coefficient_kernel(isa), kernels::isa_name(isa));
                             },
                             Scope::kOnce};
const Control no_log1p{"coefficients", Gate::kAccuracy, "log(1 + x) for log1p", [](Check& c) { coefficients(c, naive_coefficients); },
                       Scope::kOnce};
const Control platform{"coefficients", Gate::kIsas, "the platform's functions in one set",
                       [](Check& c) { same_coefficients(c, naive_coefficients, "sets"); }, Scope::kOnce};

const Control reversed{"conv_silu", Gate::kAccuracy, "taps the wrong way round",
                       [](Check& check) {
                         accuracy(check, [](const ConvArgs& a) {
                           ConvArgs b = a;
                           std::vector<float> taps(std::size_t(kConvTaps) * a.channels);
                           for (int t = 0; t < kConvTaps; t++)
                             std::copy_n(a.taps + std::int64_t(kConvTaps - 1 - t) * a.channels, a.channels,
                                         &taps[std::size_t(t) * a.channels]);
                           b.taps = taps.data();
                           right(b);
                         });
                       },
                       Scope::kOnce};
const Control whole_vectors{"conv_silu", Gate::kEdges, "leaves out what does not fill a vector",
                            [](Check& c) {
                              widths(c, [](const ConvArgs& a) {
                                ConvArgs b = a;
                                b.channel_end = a.channel_begin + (a.channel_end - a.channel_begin) / 8 * 8;
                                right(b);
                              });
                            },
                            Scope::kOnce};
const Control remembers{"conv_silu", Gate::kRepeat, "newest tap first in every second call",
                        [](Check& c) {
                          for (int i = 0; i < 100; i++)
                            repeat(c, [](const ConvArgs& a) {
                              static int calls = 0;
                              (calls++ / 2 % 2 ? newest_first : right)(a);  // a run is two calls, of two parts of the channels
                            });
                        },
                        Scope::kOnce};
const Control newest{"conv_silu", Gate::kIsas, "newest tap first in one set",
                     [](Check& check) {
                       const Stream s(check, 60, 3000);
                       check.equal_bits(s.whole(newest_first), s.whole(kernel(check.isa)), "sets");
                     },
                     Scope::kOnce};
const Control stale{"conv_silu", Gate::kRows, "reads the ring one row too old", [](Check& c) { cuts(c, stale_ring, right); }, Scope::kOnce};

}  // namespace
}  // namespace lockstep::contract
