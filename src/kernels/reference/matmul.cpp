#include "kernels/reference/matmul.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/ops/matmul.h"

namespace lockstep::kernels::reference {
namespace {

constexpr double kUnit = 0x1p-24, kTiny = 0x1p-126;
double gamma(double n) { return n * kUnit / (1 - n * kUnit); }
double flushed(double v) { return std::fabs(v) < kTiny ? 0.0 : v; }

std::uint16_t load16(const std::byte* p) {
  std::uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}

/// As a plain matmul reads it: f16 and f32 rounded once to bf16.
double plain_weight(const Weight& w, std::int64_t i) {
  const double v = tensor_element(w.weight, i);
  return w.weight.dtype == DType::kBF16 ? v : double(to_float(to_bf16(float(v))));
}

void plain(const Weight& w, const bf16* x, std::int64_t x_stride, int rows, MatmulReference& out) {
  const std::int64_t k = w.in_features, blocks = (k + kDotBlock - 1) / kDotBlock;
  std::vector<double> row(static_cast<std::size_t>(k));
  for (std::int64_t o = 0; o < w.out_features; o++) {
    for (std::int64_t i = 0; i < k; i++) row[std::size_t(i)] = plain_weight(w, o * k + i);
    for (int r = 0; r < rows; r++) {
      double sum = 0, magnitude = 0;
      for (std::int64_t i = 0; i < k; i++) {
        const double p = row[std::size_t(i)] * flushed(double(to_float(x[r * x_stride + i])));
        sum += p;
        magnitude += std::fabs(p);
      }
      const std::size_t at = std::size_t(r * w.out_features + o);
      out.value[at] = sum;
      out.bound[at] = gamma(2 * double(blocks) + 4) * magnitude + double(k + 47) * kTiny;
    }
  }
}

void affine(const Weight& w, const bf16* x, std::int64_t x_stride, int rows, MatmulReference& out) {
  const std::int64_t groups = w.in_features / w.group_size;
  for (std::int64_t o = 0; o < w.out_features; o++)
    for (std::int64_t g = 0; g < groups; g++) {
      const double scale = tensor_element(w.scales, o * groups + g), bias = tensor_element(w.biases, o * groups + g);
      double codes[128];
      for (int i = 0; i < w.group_size; i++) codes[i] = weight_code(w, o, g * w.group_size + i);
      for (int r = 0; r < rows; r++) {
        const bf16* xg = x + r * x_stride + g * w.group_size;
        int largest = 0;
        for (int i = 0; i < w.group_size; i++) largest = std::max(largest, int(xg[i] & 0x7fff));
        const int exponent = largest >> 7;
        if (exponent == 255) continue;
        const double unit = std::ldexp(1.0, exponent - 127 - 14);
        double sum = 0, by_code = 0, by_bias = 0, weights = 0, magnitude = 0;
        for (int i = 0; i < w.group_size; i++) {
          const double v = flushed(double(to_float(xg[i]))), weight = scale * codes[i] + bias, moved = std::fabs(v) + unit / 2;
          sum += weight * v;
          magnitude += std::fabs(weight * v);
          weights += std::fabs(weight);
          by_code += codes[i] * moved;
          by_bias += moved;
        }
        const std::size_t at = std::size_t(r * w.out_features + o);
        out.value[at] += sum;
        out.bound[at] += exponent <= kZeroGroupExponent
                             ? magnitude
                             : unit / 2 * weights + gamma(double(groups) + 3) * (std::fabs(scale) * by_code + std::fabs(bias) * by_bias);
        out.bound[at] += 0x1p-124;
      }
    }
}

}  // namespace

int weight_code(const Weight& w, std::int64_t output, std::int64_t input) {
  const std::byte* row = w.weight.data + output * (w.in_features / 8 * w.bits);
  int code = 0;
  for (int b = 0; b < w.bits; b++) {
    const std::int64_t bit = input * w.bits + b;
    code |= (std::to_integer<int>(row[bit / 8]) >> bit % 8 & 1) << b;
  }
  return code;
}

double tensor_element(const TensorView& t, std::int64_t i) {
  switch (t.dtype) {
    case DType::kBF16: return flushed(double(to_float(load16(t.data + i * 2))));
    case DType::kF16: {
      const std::uint16_t h = load16(t.data + i * 2);
      const int exponent = h >> 10 & 31;
      const double fraction = h & 0x3ff, sign = h & 0x8000 ? -1 : 1;
      if (exponent == 31) return fraction != 0 ? std::nan("") : sign * INFINITY;
      return sign * (exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24));
    }
    default: {
      LOCKSTEP_CHECK(t.dtype == DType::kF32);
      float v;
      std::memcpy(&v, t.data + i * 4, 4);
      return flushed(double(v));
    }
  }
}

MatmulReference matmul(const Weight& weight, const bf16* x, std::int64_t x_stride, int rows, const float* bias) {
  MatmulReference out;
  const std::size_t n = std::size_t(rows) * std::size_t(weight.out_features);
  out.value.assign(n, 0.0);
  out.bound.assign(n, 0.0);
  if (weight.affine) affine(weight, x, x_stride, rows, out);
  else plain(weight, x, x_stride, rows, out);
  if (bias)
    for (std::size_t i = 0; i < n; i++) {
      out.value[i] += double(bias[i % std::size_t(weight.out_features)]);
      out.bound[i] = (1 + kUnit) * out.bound[i] + kUnit * std::fabs(out.value[i]) + kTiny;
    }
  return out;
}

}  // namespace lockstep::kernels::reference
