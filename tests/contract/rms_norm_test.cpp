// The three norms (kernels/ops/rms_norm.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "contract/contract.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/rms_norm.h"
#include "kernels/reference/rms_norm.h"

namespace lockstep::contract {
namespace {

using kernels::Isa;
using kernels::cpu::RmsNormKernels;

constexpr double kUnit = 0x1p-24;
constexpr float kEps = 1e-6f;
constexpr int kWidths[] = {1,    31,   37,   64,   80,   128, 256,
                           1024, 1536, 2048, 2560, 4096, 5120};  // head and hidden sizes of supported models, odd ones

double norm_error(std::size_t n) { return (double(n) / 16 + 6) / 2 + 5; }
void near_stored(Check& check, bf16 got, double want, double relative, const char* what, std::size_t n, std::size_t i) {
  const double bound = relative * kUnit * std::fabs(want) + 0x1p-126;
  check.near(to_float(got), want, bf16_ulp(std::fabs(want) + bound) / 2 + bound, fmt::format("{}, width {}", what, n), std::int64_t(i));
}

void accuracy(Check& check, const RmsNormKernels& f) {
  for (int width : kWidths)
    for (double octaves : {0.0, 6.0}) {
      const std::size_t n = std::size_t(width);
      const std::vector<bf16> x = check.random.wide_bf16s(n, octaves), z = check.random.wide_bf16s(n, 2);
      const std::vector<float> w = check.random.normals(n, 1), o = check.random.normals(n, std::exp2(octaves - 4));
      std::vector<bf16> out(n, kPoisonBf16);
      f.rms_norm(x.data(), w.data(), width, kEps, out.data());
      auto want = kernels::reference::rms_norm(x, w, kEps);
      for (std::size_t i = 0; i < n; i++) near_stored(check, out[i], want[i], norm_error(n), "rms_norm", n, i);
      f.gated_rms_norm(o.data(), z.data(), w.data(), width, kEps, out.data());
      want = kernels::reference::gated_rms_norm(o, z, w, kEps);
      for (std::size_t i = 0; i < n; i++) near_stored(check, out[i], want[i], norm_error(n) + 6, "gated_rms_norm", n, i);
      std::uint8_t flag = 0;
      f.l2_norm(x.data(), width, out.data(), &flag);
      check.that(flag == 0, "finite rows raise no flag");
      want = kernels::reference::l2_norm(x);
      for (std::size_t i = 0; i < n; i++) near_stored(check, out[i], want[i], norm_error(n), "l2_norm", n, i);
    }
}

enum class Fault { kNone, kEvenFirst, kSequential, kDropsLast, kReadsOneTooFar };

/// The definition's sum of squares, one value at a time.
template <class T>
float squares(const T* x, int n, Fault fault) {
  if (fault == Fault::kDropsLast) n--;
  if (fault == Fault::kReadsOneTooFar) n++;
  const auto at = [&](int i) {
    if (i >= n) return 0.0f;
    if constexpr (std::is_same_v<T, bf16>)
      return to_float(x[i]);
    else
      return x[i];
  };
  float lane[16] = {};
  if (fault == Fault::kSequential) {
    for (int i = 0; i < n; i++) lane[0] = std::fma(at(i), at(i), lane[0]);
    return lane[0];
  }
  for (int block = 0; block < n; block += 32)
    for (int i = 0; i < 16; i++)
      for (int odd : {1, 0}) {
        const float v = at(block + 2 * i + (fault == Fault::kEvenFirst ? 1 - odd : odd));
        lane[i] = std::fma(v, v, lane[i]);
      }
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; i++) lane[i] += lane[i + width];
  return lane[0] + 0.0f;
}
float silu(float x) {
  float e, minus = -x;
  kernels::cpu::elementwise_kernels(Isa::kGeneric).exp(&minus, 1, &e);
  return x / (1.0f + e);
}

template <Fault fault>
void rms_definition(const bf16* x, const float* w, int n, float eps, bf16* out) {
  const float inv = 1.0f / std::sqrt(squares(x, n, fault) / float(n) + eps);
  for (int i = 0; i < n; i++) out[i] = to_bf16((to_float(x[i]) * inv) * w[i]);
}
template <Fault fault>
void gated_definition(const float* o, const bf16* z, const float* w, int n, float eps, bf16* out) {
  const float inv = 1.0f / std::sqrt(squares(o, n, fault) / float(n) + eps);
  for (int i = 0; i < n; i++) out[i] = to_bf16(((o[i] * inv) * w[i]) * silu(to_float(z[i])));
}
template <Fault fault>
void l2_definition(const bf16* x, int n, bf16* out, std::uint8_t*) {
  const float length = std::sqrt(squares(x, n, fault) + 1e-6f);
  for (int i = 0; i < n; i++) out[i] = to_bf16(to_float(x[i]) / length);
}
template <Fault fault>
constexpr RmsNormKernels kDefinition = {rms_definition<fault>, gated_definition<fault>, l2_definition<fault>};

/// A row for each norm. `ties`: weights that put every result on the border between two bf16 values, so that the last bit of the sum
/// decides.
struct Row {
  std::vector<bf16> x, z;
  std::vector<float> o, w, gated_w;
  Row(Check& check, std::size_t n, double octaves, bool ties)
      : x(check.random.wide_bf16s(n, octaves)),
        z(ties ? std::vector<bf16>(n, to_bf16(100.0f)) : check.random.wide_bf16s(n, 3)),  // silu(100) is 100
        o(check.random.normals(n)),
        w(check.random.normals(n)),
        gated_w(w) {
    if (!ties) return;
    const std::vector<float> one(n, 1.0f);
    const auto border = [&] { return to_float(to_bf16(float(check.random.uniform(1, 1.99)))) + 0x1p-8; };
    const auto y = kernels::reference::rms_norm(x, one, kEps), gated = kernels::reference::gated_rms_norm(o, z, one, kEps);
    for (std::size_t i = 0; i < n; i++) w[i] = float(border() / y[i]), gated_w[i] = float(border() / gated[i]);
  }
};

/// Outputs of the three norms on one row of the given width, every buffer surrounded by poison.
std::vector<bf16> outputs(Check& check, const RmsNormKernels& f, const Row& row) {
  const std::size_t n = row.x.size(), margin = 40;
  std::vector<bf16> px(n + 2 * margin, kPoisonBf16), pz = px, all;
  std::vector<float> po(n + 2 * margin, poison_float()), pw = po, pg = po;
  std::copy(row.x.begin(), row.x.end(), px.begin() + margin);
  std::copy(row.z.begin(), row.z.end(), pz.begin() + margin);
  std::copy(row.o.begin(), row.o.end(), po.begin() + margin);
  std::copy(row.w.begin(), row.w.end(), pw.begin() + margin);
  std::copy(row.gated_w.begin(), row.gated_w.end(), pg.begin() + margin);
  std::uint8_t flag = 0;
  for (int which = 0; which < 3; which++) {
    std::vector<bf16> out(n + 2 * margin, kPoisonBf16);
    if (which == 0) f.rms_norm(&px[margin], &pw[margin], int(n), kEps, &out[margin]);
    if (which == 1) f.gated_rms_norm(&po[margin], &pz[margin], &pg[margin], int(n), kEps, &out[margin]);
    if (which == 2) f.l2_norm(&px[margin], int(n), &out[margin], &flag);
    for (std::size_t i = 0; i < out.size(); i++)
      if (i < margin || i >= margin + n) check.that(out[i] == kPoisonBf16, fmt::format("wrote outside of a row of {}", n));
    all.insert(all.end(), out.begin() + margin, out.begin() + margin + std::ptrdiff_t(n));
  }
  return all;
}

/// The definition's bits at every width up to 100 and the models' widths; poison around every row, so company cannot matter.
void rows(Check& check, const RmsNormKernels& f) {
  std::vector<int> widths(std::begin(kWidths), std::end(kWidths));
  for (int n = 1; n <= 100; n++) widths.push_back(n);
  for (int width : widths)
    for (bool ties : {false, true}) {
      const Row row(check, std::size_t(width), 2, ties);
      check.equal_bits(outputs(check, f, row), outputs(check, kDefinition<Fault::kNone>, row), fmt::format("width {}", width));
    }
}

void edges(Check& check, const RmsNormKernels& f) {
  const std::size_t n = 77;
  const std::vector<float> w(n, 1.5f);
  std::vector<bf16> x(n, 0), out(n, kPoisonBf16);
  std::uint8_t flag = 0;
  f.rms_norm(x.data(), w.data(), int(n), kEps, out.data());
  for (bf16 v : out) check.that(v == 0, "a row of zeros stays one");
  f.l2_norm(x.data(), int(n), out.data(), &flag);
  for (bf16 v : out) check.that(v == 0 && flag == 0, "l2_norm of zeros");
  x[76] = to_bf16(NAN);
  f.rms_norm(x.data(), w.data(), int(n), kEps, out.data());
  for (bf16 v : out) check.that(v == 0x7fc0, "NaN spreads over its row as the one NaN");
  f.l2_norm(x.data(), int(n), out.data(), &flag);
  for (bf16 v : out) check.that(v == 0 && flag == 1, "l2_norm contains a NaN and says so");
  flag = 0;
  x[76] = to_bf16(INFINITY), x[3] = to_bf16(2.0f);
  f.l2_norm(x.data(), int(n), out.data(), &flag);
  for (bf16 v : out) check.that(v == 0 && flag == 1, "l2_norm contains an infinity and says so");
}

const RmsNormKernels& kernel(Isa isa) { return kernels::cpu::rms_norm_kernels(isa); }

const Case accuracy_case{"rms_norm", Gate::kAccuracy, [](Check& c) { accuracy(c, kernel(c.isa)); }};
const Case rows_case{"rms_norm", Gate::kRows, [](Check& c) { rows(c, kernel(c.isa)); }};
const Case edges_case{"rms_norm", Gate::kEdges, [](Check& c) { edges(c, kernel(c.isa)); }};
void repeat(Check& check, const RmsNormKernels& f) {
  const Row row(check, 1000, 2, true);
  const auto first = outputs(check, f, row);
  check.equal_bits(outputs(check, f, row), first, "second call");
}
const Case repeat_case{"rms_norm", Gate::kRepeat, [](Check& c) { repeat(c, kernel(c.isa)); }};
const Case isas_case{"rms_norm", Gate::kIsas,
                     [](Check& check) {
                       for (int width : kWidths)
                         for (bool ties : {false, true}) {
                           const Row row(check, std::size_t(width), 8, ties);
                           const auto want = outputs(check, kernel(Isa::kGeneric), row);
                           for (Isa isa : check.isas) check.equal_bits(outputs(check, kernel(isa), row), want, kernels::isa_name(isa));
                         }
                     },
                     Scope::kOnce};

const Control drops_last{"rms_norm", Gate::kAccuracy, "leaves the last value out of the sum",
                         [](Check& c) { accuracy(c, kDefinition<Fault::kDropsLast>); }, Scope::kOnce};
const Control even_first{"rms_norm", Gate::kRows, "takes the even element first", [](Check& c) { rows(c, kDefinition<Fault::kEvenFirst>); },
                         Scope::kOnce};
const Control too_far{"rms_norm", Gate::kRows, "reads one value too far", [](Check& c) { rows(c, kDefinition<Fault::kReadsOneTooFar>); },
                      Scope::kOnce};
const Control sequential{"rms_norm", Gate::kIsas, "a sequential sum in one set",
                         [](Check& check) {
                           for (int width : kWidths) {
                             const Row row(check, std::size_t(width), 2, true);
                             check.equal_bits(outputs(check, kDefinition<Fault::kSequential>, row), outputs(check, kernel(check.isa), row),
                                              "sets");
                           }
                         },
                         Scope::kOnce};
const Control remembers{
    "rms_norm", Gate::kRepeat, "a sequential sum in every second call",
    [](Check& check) {
      for (int i = 0; i < 8; i++)
        repeat(check, {rms_definition<Fault::kNone>,
                       [](const float* o, const bf16* z, const float* w, int n, float eps, bf16* out) {
                         static int calls = 0;
                         (calls++ % 2 ? gated_definition<Fault::kSequential> : gated_definition<Fault::kNone>)(o, z, w, n, eps, out);
                       },
                       l2_definition<Fault::kNone>});
    },
    Scope::kOnce};
const Control spreads{"rms_norm", Gate::kEdges, "l2_norm that lets NaN through", [](Check& c) { edges(c, kDefinition<Fault::kNone>); },
                      Scope::kOnce};

}  // namespace
}  // namespace lockstep::contract
