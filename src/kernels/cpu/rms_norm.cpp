#include "kernels/cpu/rms_norm.h"

#include "kernels/cpu/target.h"

#include "kernels/cpu/math.h"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {
namespace {

void rms_norm_row(const bf16* x, const float* weight, int width, float eps, bf16* out) {
  const F32 inv = set1(inverse_rms(x, width, eps));
  int i = 0;
  for (; i + kLanes <= width; i += kLanes) store(out + i, mul(mul(load(x + i), inv), load(weight + i)));
  if (const int n = width - i; n > 0) store_first(out + i, mul(mul(load_first(x + i, n), inv), load_first(weight + i, n)), n);
}

LOCKSTEP_INLINE F32 gated(F32 o, F32 z, F32 w, F32 inv) { return mul(mul(mul(o, inv), w), silu(z)); }

void gated_rms_norm_head(const float* o, const bf16* z, const float* weight, int dim, float eps, bf16* out) {
  const F32 inv = set1(inverse_rms(o, dim, eps));
  int i = 0;
  for (; i + kLanes <= dim; i += kLanes) store(out + i, gated(load(o + i), load(z + i), load(weight + i), inv));
  if (const int n = dim - i; n > 0)
    store_first(out + i, gated(load_first(o + i, n), load_first(z + i, n), load_first(weight + i, n), inv), n);
}

void l2_norm_head(const bf16* x, int dim, bf16* out, std::uint8_t* flag) {
  const F32 length = set1(std::sqrt(sum_of_squares(x, dim) + 1e-6f));
  bool finite = true;
  for (int i = 0; i < dim; i += kLanes) {
    const int n = std::min(kLanes, dim - i);
    const F32 y = div(n == kLanes ? load(x + i) : load_first(x + i, n), length);
    if (n == kLanes) store(out + i, y);
    else store_first(out + i, y, n);
    finite = finite && all(less(magnitude(y), set1(kInfinity)));
  }
  if (finite) return;
  for (int i = 0; i < dim; i++) out[i] = finite_bf16(out[i], flag);
}

}  // namespace

const RmsNormKernels rms_norm = {rms_norm_row, gated_rms_norm_head, l2_norm_head};

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA

#include "kernels/cpu/target_end.h"
