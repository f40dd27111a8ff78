// exp, exp2, log, log1p, sigmoid, silu, softplus against libm in float64, over their whole range (bounds: kernels/ops/math.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "contract/contract.h"
#include "kernels/cpu/delta_net.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/reference/elementwise.h"

namespace lockstep::contract {
namespace {

using kernels::Isa;
using kernels::cpu::ElementwiseKernels;
using Values = void (*)(const float*, std::int64_t, float*);

constexpr double kUnit = 0x1p-24, kSmallest = 0x1p-126;
constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

struct Function1 {
  const char* name;
  Values ElementwiseKernels::*values;
  double (*exact)(double);
  double units;      // relative bound in u
  double low, high;  // interesting range
};
const Function1 kFunctions[] = {
    {"exp", &ElementwiseKernels::exp, [](double x) { return std::exp(x); }, 3, -90, 90},
    {"exp2", &ElementwiseKernels::exp2, [](double x) { return std::exp2(x); }, 3, -128, 129},
    {"log", &ElementwiseKernels::log, [](double x) { return std::log(x); }, 4, 0, 4},
    {"log1p", &ElementwiseKernels::log1p, [](double x) { return std::log1p(x); }, 5, -1, 4},
};

/// Dense over the interesting range, log-uniform over every exponent, and the places where a case changes.
std::vector<float> arguments(Check& check, const Function1& f) {
  std::vector<float> x;
  for (int i = 0; i < 200000; i++) x.push_back(float(check.random.uniform(f.low, f.high)));
  for (int i = 0; i < 100000; i++) {
    const std::uint32_t bits = std::uint32_t(check.random.bits());
    const float v = std::bit_cast<float>(bits);
    if (std::fabs(v) >= kSmallest && std::fabs(v) < kInf) x.push_back(v);
  }
  for (float around : {0.0f, 1.0f, -1.0f, 0.5f, 2.0f, 0.70710678f, 1.41421356f, 0.41421356f, -0.29289322f, 88.72283f, -87.33654f, 127.0f,
                       128.0f, -126.0f, -0.5f})
    for (int step = -40; step <= 40; step++) {
      float v = around;
      for (int i = 0; i < std::abs(step); i++) v = std::nextafter(v, step < 0 ? -kInf : kInf);
      if (v == 0 || std::fabs(v) >= kSmallest) x.push_back(v);
    }
  return x;
}

void accuracy(Check& check, const Function1& f, Values values) {
  const std::vector<float> x = arguments(check, f);
  std::vector<float> y(x.size(), poison_float());
  values(x.data(), std::int64_t(x.size()), y.data());
  for (std::size_t i = 0; i < x.size(); i++) {
    double want = f.exact(x[i]);
    if (std::fabs(want) < kSmallest) want = 0;
    if (std::fabs(want) > double(std::numeric_limits<float>::max())) want = std::copysign(kInf, want);
    const bool edge = std::isinf(want) != std::isinf(y[i]) && std::fabs(double(x[i]) - (f.high < 100 ? 88.72283 : 128)) < 1e-5;
    if (!edge) check.near(y[i], want, f.units * kUnit * std::fabs(want) + kSmallest, fmt::format("{}({:.9g})", f.name, x[i]));
  }
}

void specials(Check& check, const ElementwiseKernels& k) {
  const auto at = [](Values values, float x) {
    float y = poison_float();
    values(&x, 1, &y);
    return y;
  };
  check.that(at(k.exp, -1e4f) == 0 && at(k.exp, -kInf) == 0 && at(k.exp, -3e38f) == 0, "exp of very small values is 0");
  check.that(at(k.exp, 1e4f) == kInf && at(k.exp, kInf) == kInf && at(k.exp, 3e38f) == kInf, "exp of very large values is infinity");
  check.that(at(k.exp, 0.0f) == 1 && at(k.exp, -0.0f) == 1, "exp(0) is 1");
  check.that(at(k.exp2, -kInf) == 0 && at(k.exp2, -3e38f) == 0 && at(k.exp2, kInf) == kInf && at(k.exp2, 3e38f) == kInf,
             "exp2 of infinities");
  for (int i = -126; i <= 127; i++) check.that(at(k.exp2, float(i)) == std::ldexp(1.0f, i), "exp2 of whole numbers is exact");
  check.that(at(k.log, 0.0f) == -kInf && at(k.log, -0.0f) == -kInf && at(k.log, kInf) == kInf && at(k.log, 1.0f) == 0,
             "log of 0, 1 and infinity");
  check.that(std::isnan(at(k.log, -1.0f)) && std::isnan(at(k.log, -kInf)), "log below zero is NaN");
  check.that(at(k.log1p, -1.0f) == -kInf && at(k.log1p, kInf) == kInf && at(k.log1p, 0.0f) == 0, "log1p of -1, 0 and infinity");
  check.that(std::isnan(at(k.log1p, -1.5f)), "log1p below -1 is NaN");
  for (Values f : {k.exp, k.exp2, k.log, k.log1p}) check.that(std::isnan(at(f, kNan)), "NaN for NaN");
  const float all[] = {kInf, 1.0f, -kInf, kNan, 2.0f};
  check.that(!k.not_finite(all + 1, 1) && k.not_finite(all, 5) && k.not_finite(all, 2) && k.not_finite(all + 3, 2), "not_finite");
  const std::vector<float> huge(37, 3.4e38f);
  check.that(!k.not_finite(huge.data(), 37), "huge values are finite");
}

/// sigmoid and softplus come with the coefficients (beta, -g for neg_exp_a = -1), silu with silu_mul (up = 1).
void gates(Check& check) {
  const auto& coefficients = kernels::cpu::delta_net_kernels(check.isa).coefficients;
  const auto& silu_mul = kernels::cpu::elementwise_kernels(check.isa).silu_mul;
  std::vector<bf16> x;
  for (int bits = 0; bits < 0x10000; bits++) {
    const float v = to_float(bf16(bits));
    if (std::fabs(v) >= float(kSmallest) && std::fabs(v) < kInf) x.push_back(bf16(bits));
  }
  const int n = int(x.size());
  const std::vector<float> minus_one(x.size(), -1.0f), none(x.size(), 0.0f);
  const std::vector<bf16> one(x.size(), to_bf16(1.0f));
  std::vector<float> g(x.size()), beta(x.size());
  std::vector<bf16> silu(x.size());
  coefficients(x.data(), x.data(), minus_one.data(), none.data(), n, g.data(), beta.data());
  silu_mul(x.data(), one.data(), n, silu.data());
  for (int i = 0; i < n; i++) {
    const double v = to_float(x[std::size_t(i)]);
    const double want = kernels::reference::sigmoid(v), soft = std::max(-kernels::reference::softplus(v), -1e4);
    check.near(beta[std::size_t(i)], want, 5 * kUnit * want + kSmallest, fmt::format("sigmoid({:.9g})", v));
    check.near(g[std::size_t(i)], soft, 9 * kUnit * std::fabs(soft) + kSmallest, fmt::format("softplus({:.9g})", v));
    const double s = kernels::reference::silu(v), bound = 6 * kUnit * std::fabs(s) + 3e-37;
    check.near(to_float(silu[std::size_t(i)]), s, bf16_ulp(std::fabs(s) + bound) / 2 + bound, fmt::format("silu({:.9g})", v));
  }
}

const Case exp_case{"math", Gate::kAccuracy, "exp",
                    [](Check& c) { accuracy(c, kFunctions[0], kernels::cpu::elementwise_kernels(c.isa).exp); }};
const Case exp2_case{"math", Gate::kAccuracy, "exp2",
                     [](Check& c) { accuracy(c, kFunctions[1], kernels::cpu::elementwise_kernels(c.isa).exp2); }};
const Case log_case{"math", Gate::kAccuracy, "log",
                    [](Check& c) { accuracy(c, kFunctions[2], kernels::cpu::elementwise_kernels(c.isa).log); }};
const Case log1p_case{"math", Gate::kAccuracy, "log1p",
                      [](Check& c) { accuracy(c, kFunctions[3], kernels::cpu::elementwise_kernels(c.isa).log1p); }};
const Case gates_case{"math", Gate::kAccuracy, "sigmoid, softplus and silu at every bf16 value", gates};
const Case specials_case{"math", Gate::kEdges, [](Check& c) { specials(c, kernels::cpu::elementwise_kernels(c.isa)); }};

const Case isas_case{"math", Gate::kIsas,
                     [](Check& check) {
                       for (const auto& f : kFunctions) {
                         std::vector<float> x = arguments(check, f), want(x.size()), got(x.size());
                         (kernels::cpu::elementwise_kernels(Isa::kGeneric).*f.values)(x.data(), std::int64_t(x.size()), want.data());
                         for (Isa isa : check.isas) {
                           (kernels::cpu::elementwise_kernels(isa).*f.values)(x.data(), std::int64_t(x.size()), got.data());
                           for (std::size_t i = 0; i < x.size(); i++)  // which NaN it is may differ: none is ever kept
                             if (std::isnan(want[i]) && std::isnan(got[i])) got[i] = want[i];
                           check.equal_bits(got, want, std::string(f.name) + " on " + std::string(kernels::isa_name(isa)));
                         }
                       }
                     },
                     Scope::kOnce};

const Control wrong_coefficient{
    "math", Gate::kAccuracy, "exp with a polynomial one term short",
    [](Check& check) {
      accuracy(check, kFunctions[0], [](const float* x, std::int64_t n, float* y) {
        for (std::int64_t i = 0; i < n; i++) {
          const double k = std::nearbyint(std::clamp(double(x[i]), -1e4, 1e4) * 1.4426950408889634), r = x[i] - k * 0.6931471805599453;
          y[i] = float(std::ldexp(1 + r + r * r / 2 + r * r * r / 6 + r * r * r * r / 24 + r * r * r * r * r / 120, int(k)));
        }
      });
    },
    Scope::kOnce};
const Control no_floor{"math", Gate::kEdges, "exp without its floor",
                       [](Check& check) {
                         ElementwiseKernels f = kernels::cpu::elementwise_kernels(Isa::kGeneric);
                         f.exp = [](const float* x, std::int64_t n, float* y) {
                           for (std::int64_t i = 0; i < n; i++) {
                             if (std::isnan(y[i] = x[i])) continue;
                             const float k = std::nearbyint(std::clamp(x[i], -1e6f, 1e6f) * 1.44269502f);
                             y[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(std::exp(x[i] - k * 0.693147181f)) +
                                                         (std::uint32_t(std::int64_t(k)) << 23));
                           }
                         };
                         specials(check, f);
                       },
                       Scope::kOnce};
const Control libm{"math", Gate::kIsas, "the platform's exp in one set",
                   [](Check& check) {
                     std::vector<float> x = arguments(check, kFunctions[0]), want(x.size()), got(x.size());
                     kernels::cpu::elementwise_kernels(check.isa).exp(x.data(), std::int64_t(x.size()), want.data());
                     for (std::size_t i = 0; i < x.size(); i++) got[i] = std::exp(x[i]);
                     check.equal_bits(got, want, "exp");
                   },
                   Scope::kOnce};

}  // namespace
}  // namespace lockstep::contract
