#include "kernels/cpu/rope.h"

#include "kernels/cpu/target.h"

#include "kernels/cpu/math.h"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {
namespace {

/// x, or its normed value where there is a weight.
LOCKSTEP_INLINE F32 normed(const bf16* x, const float* weight, F32 inv, int n) {
  const F32 v = n == kLanes ? load(x) : load_first(x, n);
  if (!weight) return v;
  return mul(mul(v, inv), n == kLanes ? load(weight) : load_first(weight, n));
}
LOCKSTEP_INLINE void put(bf16* out, F32 v, int n) {
  if (n == kLanes)
    store(out, v);
  else
    store_first(out, v, n);
}

void norm_rope_head(const bf16* x, const float* weight, int head_dim, float eps, const float* cos, const float* sin, int rotary_dim,
                    bf16* out) {
  const F32 inv = set1(weight ? inverse_rms(x, head_dim, eps) : 1.0f);
  const int half = rotary_dim / 2;
  for (int i = 0; i < half; i += kLanes) {
    const int n = std::min(kLanes, half - i);
    const F32 c = n == kLanes ? load(cos + i) : load_first(cos + i, n), s = n == kLanes ? load(sin + i) : load_first(sin + i, n);
    const F32 a = normed(x + i, weight ? weight + i : nullptr, inv, n);
    const F32 b = normed(x + half + i, weight ? weight + half + i : nullptr, inv, n);
    put(out + i, fma(a, c, negate(mul(b, s))), n);
    put(out + half + i, fma(b, c, mul(a, s)), n);
  }
  for (int i = rotary_dim; i < head_dim; i += kLanes) {
    const int n = std::min(kLanes, head_dim - i);
    put(out + i, normed(x + i, weight ? weight + i : nullptr, inv, n), n);
  }
}

}  // namespace

const RopeKernels rope = {norm_rope_head};

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA

#include "kernels/cpu/target_end.h"
