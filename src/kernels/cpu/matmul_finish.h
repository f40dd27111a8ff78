// Sums to outputs: bias, residual and store of kernels/ops/matmul.h. Included by the matmul sources of every instruction set.
#pragma once
#include "kernels/cpu/matmul_kernels.h"
#include "kernels/cpu/target.h"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

/// to_bf16 without branches, so that a loop of it becomes vectors.
LOCKSTEP_INLINE bf16 store_bits(float f) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(f), magnitude = u & 0x7fffffffu;
  std::uint32_t r = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
  r = magnitude > 0x7f800000u ? 0x7fc0u : r;
  r = magnitude < 0x00800000u ? u >> 16 & 0x8000u : r;
  return bf16(r);
}

/// n sums of one row, outputs [o, o + n). With n a constant the loops are straight vector code.
LOCKSTEP_INLINE void finish_outputs(const MatmulTarget& t, std::int64_t row, std::int64_t o, int n, const float* sums) {
  float v[kTileOutputs];
  const float* bias = t.bias ? t.bias + o : nullptr;
  for (int i = 0; i < n; i++) v[i] = bias ? sums[i] + bias[i] : sums[i];
  if (t.output == MatmulOutput::kF32) {
    float* y = static_cast<float*>(t.y) + row * t.y_stride + o;
    for (int i = 0; i < n; i++) y[i] = v[i];
    return;
  }
  bf16* y = static_cast<bf16*>(t.y) + row * t.y_stride + o;
  bf16 stored[kTileOutputs];
  for (int i = 0; i < n; i++) stored[i] = store_bits(v[i]);
  if (t.output == MatmulOutput::kAddResidual)
    for (int i = 0; i < n; i++) stored[i] = store_bits(to_float(y[i]) + to_float(stored[i]));
  for (int i = 0; i < n; i++) y[i] = stored[i];
}

/// Up to 16 sums of one row. Out of line: the kernels that end in it are many.
__attribute__((noinline)) static void finish(const MatmulTarget& t, std::int64_t row, std::int64_t o, int n, const float* sums) {
  if (n == kTileOutputs) finish_outputs(t, row, o, kTileOutputs, sums);
  else finish_outputs(t, row, o, n, sums);
}

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
