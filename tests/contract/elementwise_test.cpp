// silu(gate) * up (kernels/ops/elementwise.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "contract/contract.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/reference/elementwise.h"

namespace lockstep::contract {
namespace {

using kernels::Isa;
using SiluMul = void (*)(const bf16*, const bf16*, std::int64_t, bf16*);
SiluMul silu_mul(Isa isa) { return kernels::cpu::elementwise_kernels(isa).silu_mul; }

std::vector<bf16> run(SiluMul f, std::vector<bf16> gate, std::vector<bf16> up) {
  const std::size_t n = gate.size();
  gate.push_back(kPoisonBf16), up.push_back(kPoisonBf16);  // room for a control that goes too far
  std::vector<bf16> out(n + 1, kPoisonBf16);
  f(gate.data(), up.data(), std::int64_t(n), out.data());
  out.resize(n);
  return out;
}

void accuracy(Check& check, SiluMul f) {
  for (std::size_t n : {37, 3584, 9216, 12288}) {  // intermediate sizes of supported models, and an odd one
    const std::vector<bf16> gate = check.random.wide_bf16s(n, 3), up = check.random.wide_bf16s(n, 6), out = run(f, gate, up);
    for (std::size_t i = 0; i < n; i++) {
      const double want = kernels::reference::silu(to_float(gate[i])) * to_float(up[i]);
      const double bound = 6 * 0x1p-24 * std::fabs(want) + 3e-37 * std::fabs(to_float(up[i])) + 0x1p-126;
      check.near(to_float(out[i]), want, bf16_ulp(std::fabs(want) + bound) / 2 + bound, "silu_mul", std::int64_t(i));
    }
  }
}

/// Every length up to 70, next to poison that must be neither read into a result nor overwritten.
void edges(Check& check, SiluMul f) {
  const std::vector<bf16> gate = check.random.bf16s(70), up = check.random.bf16s(70), all = run(f, gate, up);
  for (std::size_t n = 1; n <= 70; n++) {
    std::vector<bf16> g(n + 16, kPoisonBf16), u = g, out = g;
    std::copy_n(gate.begin(), n, g.begin() + 8);
    std::copy_n(up.begin(), n, u.begin() + 8);
    f(g.data() + 8, u.data() + 8, std::int64_t(n), out.data() + 8);
    for (std::size_t i = 0; i < out.size(); i++)
      if (!check.that(out[i] == (i >= 8 && i < 8 + n ? all[i - 8] : kPoisonBf16), fmt::format("length {} element {}", n, i))) return;
  }
}

const Case accuracy_case{"silu_mul", Gate::kAccuracy, [](Check& c) { accuracy(c, silu_mul(c.isa)); }};
const Case edges_case{"silu_mul", Gate::kEdges, [](Check& c) { edges(c, silu_mul(c.isa)); }};
/// A value alone equals the value in company, hostile or not.
void rows(Check& check, SiluMul f) {
  std::vector<bf16> gate = check.random.wide_bf16s(512, 8), up = check.random.wide_bf16s(512, 8);
  const std::vector<bf16> all = run(f, gate, up);
  for (std::size_t i = 0; i < gate.size(); i += 3) {
    bf16 alone;
    f(&gate[i], &up[i], 1, &alone);
    check.that(alone == all[i], fmt::format("a value alone differs at {}", i));
    gate[i + 1 < gate.size() ? i + 1 : 1] = to_bf16(std::numeric_limits<float>::quiet_NaN());
    up[i + 2 < up.size() ? i + 2 : 2] = to_bf16(std::numeric_limits<float>::infinity());
  }
  const std::vector<bf16> hostile = run(f, gate, up);
  for (std::size_t i = 0; i < gate.size(); i += 3) check.that(hostile[i] == all[i], fmt::format("hostile company at {}", i));
}
void repeat(Check& check, SiluMul f) {
  const std::vector<bf16> gate = check.random.wide_bf16s(1000, 3), up = check.random.wide_bf16s(1000, 3), first = run(f, gate, up);
  check.equal_bits(run(f, gate, up), first, "second call");
}
/// Every bf16 gate with a random up.
void same(Check& check, SiluMul f, std::string_view what) {
  std::vector<bf16> gate, up;
  for (int b = 0; b < 0x10000; b++) gate.push_back(bf16(b)), up.push_back(bf16(check.random.bits()));
  check.equal_bits(run(f, gate, up), run(silu_mul(Isa::kGeneric), gate, up), what);
}
/// silu(gate) stored before the product.
void stored_twice(const bf16* g, const bf16* u, std::int64_t n, bf16* out) {
  const std::vector<bf16> one(std::size_t(n), to_bf16(1.0f));
  std::vector<bf16> s(static_cast<std::size_t>(n));
  silu_mul(Isa::kGeneric)(g, one.data(), n, s.data());
  for (std::int64_t i = 0; i < n; i++) out[i] = to_bf16(to_float(s[std::size_t(i)]) * to_float(u[i]));
}

const Case rows_case{"silu_mul", Gate::kRows, [](Check& c) { rows(c, silu_mul(c.isa)); }};
const Case repeat_case{"silu_mul", Gate::kRepeat, [](Check& c) { repeat(c, silu_mul(c.isa)); }};
const Case isas_case{"silu_mul", Gate::kIsas,
                     [](Check& c) {
                       for (Isa isa : c.isas) same(c, silu_mul(isa), kernels::isa_name(isa));
                     },
                     Scope::kOnce};

const Control twice{"silu_mul", Gate::kAccuracy, "stores silu before the product", [](Check& c) { accuracy(c, stored_twice); },
                    Scope::kOnce};
const Control one_set{"silu_mul", Gate::kIsas, "one set stores silu before the product", [](Check& c) { same(c, stored_twice, "sets"); },
                      Scope::kOnce};
const Control neighbour{"silu_mul", Gate::kRows, "adds zero times the neighbour",
                        [](Check& check) {
                          rows(check, [](const bf16* g, const bf16* u, std::int64_t n, bf16* out) {
                            silu_mul(Isa::kGeneric)(g, u, n, out);
                            for (std::int64_t i = 0; i + 1 < n; i++) out[i] = to_bf16(to_float(out[i]) + 0.0f * to_float(g[i + 1]));
                          });
                        },
                        Scope::kOnce};
const Control remembers{"silu_mul", Gate::kRepeat, "stores silu first in every second call",
                        [](Check& check) {
                          repeat(check, [](const bf16* g, const bf16* u, std::int64_t n, bf16* out) {
                            static int calls = 0;
                            (calls++ % 2 ? stored_twice : silu_mul(Isa::kGeneric))(g, u, n, out);
                          });
                        },
                        Scope::kOnce};
const Control one_too_far{
    "silu_mul", Gate::kEdges, "writes one value too far",
    [](Check& check) {
      edges(check, [](const bf16* g, const bf16* u, std::int64_t n, bf16* out) { silu_mul(Isa::kGeneric)(g, u, n + 1, out); });
    },
    Scope::kOnce};

}  // namespace
}  // namespace lockstep::contract
