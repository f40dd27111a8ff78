// matmul in float64 straight from a checkpoint's bytes, with the error the kernels are allowed (kernels/ops/matmul.h).
#pragma once
#include <cstdint>
#include <vector>

#include "base/bfloat16.h"
#include "base/tensor.h"

namespace lockstep::kernels::reference {

/// Code of an affine weight: the bits-wide unsigned integer at bit input * bits of the row's little-endian bytes.
int weight_code(const Weight& weight, std::int64_t output, std::int64_t input);
/// Element i of a BF16, F16 or F32 tensor, denormals of f32 and bf16 as zero.
double tensor_element(const TensorView& tensor, std::int64_t i);

struct MatmulReference {
  std::vector<double> value, bound;  // [rows][out_features]: the sum plus bias, and how far an f32 output may lie from it
};
/// x [rows][x_stride], in_features of each row used. Groups that are not finite count as zeros, as in the definition.
MatmulReference matmul(const Weight& weight, const bf16* x, std::int64_t x_stride, int rows, const float* bias);

}  // namespace lockstep::kernels::reference
