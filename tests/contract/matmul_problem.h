// Weights, activations, runs and the definition for the contract of matmul (matmul_test.cpp).
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "contract/contract.h"
#include "kernels/cpu/matmul.h"
#include "kernels/ops/matmul.h"
#include "kernels/reference/matmul.h"

namespace lockstep::contract::matmul {

using namespace kernels;
using cpu::MatmulOutput;

// ---- problems ----

struct Shape {
  std::int64_t out, in;
  int bits = 0, group = 64;           // 0 bits: plain
  DType params = DType::kBF16;        // of scales and biases, or of a plain weight
};

inline std::string name_of(const Shape& s) {
  return std::to_string(s.out) + "x" + std::to_string(s.in) + (s.bits ? " " + std::to_string(s.bits) + " bits group " + std::to_string(s.group) : " plain");
}

struct Tensor {  // its bytes at an odd address, with poison after the end
  std::vector<std::byte> bytes;
  TensorView view;
};

inline std::uint16_t half_of(float v) {  // exact for what is drawn here: small multiples of powers of two
  std::uint16_t best = 0;
  double distance = INFINITY;
  const int exponent = std::clamp(int(std::floor(std::log2(std::max(std::fabs(v), 1e-7f)))), -14, 15);
  for (int e : {exponent, exponent + 1}) {
    const int f = int(std::lround((std::ldexp(std::fabs(double(v)), -e) - 1) * 1024));
    if (e > 15 || f < 0 || f > 1023) continue;
    const double d = std::fabs(std::ldexp(1 + f / 1024.0, e) - std::fabs(double(v)));
    if (d < distance) distance = d, best = std::uint16_t((v < 0 ? 0x8000 : 0) | (e + 15) << 10 | f);
  }
  return best;
}

inline Tensor floats(const std::string& name, DType type, std::int64_t rows, std::int64_t columns, const std::vector<float>& values) {
  const std::size_t size = dtype_bytes(type), n = values.size() * size;
  Tensor t;
  t.bytes.assign(n + 128, std::byte{0xa5});
  std::byte* at = t.bytes.data() + 1;
  for (std::size_t i = 0; i < values.size(); i++) {
    const bf16 b = to_bf16(values[i]);
    const std::uint16_t h = type == DType::kF16 ? half_of(values[i]) : 0;
    std::memcpy(at + i * size, type == DType::kF32 ? static_cast<const void*>(&values[i]) : type == DType::kF16 ? static_cast<const void*>(&h) : &b, size);
  }
  t.view = {name, type, {rows, columns}, at, n};
  return t;
}

struct Problem {
  Shape shape;
  Tensor weight_bytes, scale_bytes, bias_bytes;
  Weight weight;
};

/// A value with outliers, tiny values and zeros among normal ones.
inline float value(Random& random, double sigma) {
  const float v = random.normal(sigma);
  switch (random.integer(0, 63)) {
    case 0: return v * 4096;
    case 1: return v * 1e-6f;
    case 2: return 0;
    case 3: return v * 1e-20f;
    default: return v;
  }
}

inline std::unique_ptr<Problem> make_problem(Random& random, const Shape& s) {
  auto p = std::make_unique<Problem>();
  p->shape = s;
  Weight& w = p->weight;
  w.name = name_of(s);
  w.out_features = s.out;
  w.in_features = s.in;
  auto draw = [&](std::int64_t n, double sigma) {
    std::vector<float> v(static_cast<std::size_t>(n));
    for (float& f : v) f = value(random, sigma);
    return v;
  };
  if (!s.bits) {
    p->weight_bytes = floats("weight", s.params, s.out, s.in, draw(s.out * s.in, 0.05));
  } else {
    w.affine = true;
    w.bits = s.bits;
    w.group_size = s.group;
    const std::int64_t groups = s.in / s.group, words = s.in / 32 * s.bits;
    const double step = 1.0 / double(1 << s.bits);
    p->scale_bytes = floats("scales", s.params, s.out, groups, draw(s.out * groups, 0.2 * step));
    p->bias_bytes = floats("biases", s.params, s.out, groups, draw(s.out * groups, 0.1));
    Tensor& t = p->weight_bytes;
    t.bytes.assign(std::size_t(s.out * words * 4) + 128, std::byte{0xa5});
    for (std::int64_t i = 0; i < s.out * words * 4; i++) t.bytes[std::size_t(i + 1)] = std::byte(random.bits());
    t.view = {"weight", DType::kU32, {s.out, words}, t.bytes.data() + 1, std::size_t(s.out * words * 4)};
    w.scales = p->scale_bytes.view;
    w.biases = p->bias_bytes.view;
  }
  w.weight = p->weight_bytes.view;
  return p;
}

inline std::vector<bf16> draw_x(Random& random, int rows, std::int64_t in) {
  std::vector<bf16> x(std::size_t(rows) * std::size_t(in));
  for (bf16& v : x) v = to_bf16(value(random, 1));
  return x;
}

// ---- running ----

inline cpu::ThreadPool& pool(int threads = 2) {
  static cpu::ThreadPool one(1), two(2), three(3);
  return threads == 1 ? one : threads == 2 ? two : three;
}

inline std::unique_ptr<cpu::CpuMatrix> matrix(Check& check, Isa isa, const Weight& w) {
  auto m = cpu::make_matrix(w, isa, pool());
  if (!m.ok()) {
    check.fail(w.name + ": " + m.error().message);
    return nullptr;
  }
  return std::move(m).value();
}

struct Input {
  const bf16* x;
  std::int64_t stride;
  int rows;
};

/// Outputs with poison on every side: [1 + rows + 1][2 + out + 3].
template <class T>
struct Output {
  Output(int rows_, std::int64_t out_) : rows(rows_), out(out_), stride(out_ + 5), values(std::size_t(rows_ + 2) * std::size_t(stride)) {
    for (T& v : values) poison(v);
  }
  static void poison(T& v) {
    if constexpr (sizeof(T) == 4) v = poison_float();
    else v = kPoisonBf16;
  }
  static bool is_poison(T v) {
    T p;
    poison(p);
    return std::memcmp(&v, &p, sizeof(T)) == 0;
  }
  T* y() { return values.data() + stride + 2; }
  T at(int r, std::int64_t o) const { return values[std::size_t((r + 1) * stride + 2 + o)]; }
  std::vector<T> row(int r) const {
    const T* p = values.data() + (r + 1) * stride + 2;
    return std::vector<T>(p, p + out);
  }
  std::vector<T> all() const {
    std::vector<T> v;
    for (int r = 0; r < rows; r++)
      for (std::int64_t o = 0; o < out; o++) v.push_back(at(r, o));
    return v;
  }
  void check_written(Check& check, const std::string& what, bool preset = false) const {
    std::int64_t missing = 0, outside = 0;
    for (std::size_t i = 0; i < values.size(); i++) {
      const std::int64_t r = std::int64_t(i) / stride - 1, o = std::int64_t(i) % stride - 2;
      const bool inside = r >= 0 && r < rows && o >= 0 && o < out;
      if (inside && !preset) missing += is_poison(values[i]);
      if (!inside) outside += !is_poison(values[i]);
    }
    check.that(missing == 0, what + ": " + std::to_string(missing) + " outputs never written");
    check.that(outside == 0, what + ": " + std::to_string(outside) + " values written outside");
  }
  int rows;
  std::int64_t out, stride;
  std::vector<T> values;
};

struct Run {
  int threads = 2;
  const float* bias = nullptr;
  std::vector<std::uint8_t>* flags = nullptr;
};

template <class T>
void multiply(Isa isa, const cpu::CpuMatrix& m, const Input& in, MatmulOutput kind, Output<T>& y, const Run& run = {}) {
  auto scratch = cpu::make_matmul_scratch(in.rows, m.in_features, isa, run.threads);
  std::vector<std::uint8_t> flags(std::size_t(in.rows), 0);
  const cpu::MatmulJob job{&m, run.bias, kind, y.y(), y.stride};
  cpu::matmul(isa, pool(run.threads), *scratch, in.x, in.stride, in.rows, {&job, 1}, flags.data());
  if (run.flags) *run.flags = flags;
}

inline Output<float> sums(Isa isa, const cpu::CpuMatrix& m, const Input& in, const Run& run = {}) {
  Output<float> y(in.rows, m.out_features);
  multiply(isa, m, in, MatmulOutput::kF32, y, run);
  return y;
}

// ---- the definition, one value at a time, straight from the file's bytes ----

enum class Fault { kNone, kEvenFirst, kLastGroupDropped, kSplitSum };

inline float plain_definition(const Weight& w, const bf16* x, std::int64_t o, Fault fault) {
  float lanes[2][16] = {};
  const std::int64_t k = w.in_features, end = fault == Fault::kLastGroupDropped ? (k - 1) / kDotBlock * kDotBlock : k;
  for (std::int64_t b = 0; b * kDotBlock < end; b++)
    for (int i = 0; i < 16; i++)
      for (int step = 0; step < 2; step++) {
        const std::int64_t e = b * kDotBlock + 2 * i + (fault == Fault::kEvenFirst ? step : 1 - step);
        if (e >= end) continue;
        float& lane = lanes[fault == Fault::kSplitSum && b * kDotBlock * 2 >= end][i];
        lane = std::fma(to_float(to_bf16(float(reference::tensor_element(w.weight, o * k + e)))), to_float(x[e]), lane);
      }
  for (auto& l : lanes)
    for (int s = 8; s; s /= 2)
      for (int i = 0; i < s; i++) l[i] += l[i + s];
  return lanes[0][0] + lanes[1][0] + 0.0f;
}

inline float affine_definition(const Weight& w, const bf16* x, std::int64_t o, Fault fault) {
  float acc[2] = {};
  const std::int64_t groups = w.in_features / w.group_size, end = groups - (fault == Fault::kLastGroupDropped);
  for (std::int64_t g = 0; g < end; g++) {
    const bf16* xg = x + g * w.group_size;
    int largest = 0;
    for (int i = 0; i < w.group_size; i++) largest = std::max(largest, int(xg[i] & 0x7fff));
    const int e = largest >> 7;
    const bool zero = e <= kZeroGroupExponent || e == 255;
    std::int64_t dot = 0, sum = 0;
    for (int i = 0; i < w.group_size && !zero; i++) {
      const std::int64_t v = std::int64_t(std::nearbyint(std::ldexp(double(to_float(xg[i])), 14 + 127 - e)));
      dot += reference::weight_code(w, o, g * w.group_size + i) * v;
      sum += v;
    }
    float p = float(reference::tensor_element(w.scales, o * groups + g)) * float(dot);
    p = std::fma(float(reference::tensor_element(w.biases, o * groups + g)), float(sum), p);
    float& a = acc[fault == Fault::kSplitSum && 2 * g >= groups];
    a = std::fma(p, zero ? 0.0f : float(std::ldexp(1.0, e - 127 - 14)), a);
  }
  return fault == Fault::kSplitSum ? acc[0] + acc[1] : acc[0];
}

inline std::vector<float> definition(const Weight& w, const Input& in, Fault fault = Fault::kNone) {
  std::vector<float> y;
  for (int r = 0; r < in.rows; r++)
    for (std::int64_t o = 0; o < w.out_features; o++)
      y.push_back((w.affine ? affine_definition : plain_definition)(w, in.x + r * in.stride, o, fault));
  return y;
}

// ---- shapes ----

inline const std::vector<Shape>& widths() {  // every width, group and type of parameters
  static const std::vector<Shape> all = [] {
    std::vector<Shape> v;
    for (int bits : {2, 3, 4, 5, 6, 8})
      for (int group : {32, 64, 128})
        v.push_back({37, 384, bits, group, group == 32 ? DType::kF32 : group == 64 ? DType::kBF16 : bits % 2 ? DType::kBF16 : DType::kF16});
    v.push_back({37, 200, 0, 0, DType::kBF16});
    v.push_back({37, 96, 0, 0, DType::kF16});
    v.push_back({37, 1000, 0, 0, DType::kF32});
    return v;
  }();
  return all;
}

inline const Shape kModelShapes[] = {{16, 1024, 4, 64}, {37, 2048, 4, 64}, {17, 3584, 4, 64}, {17, 1024, 8, 64}, {17, 2048, 6, 64}, {17, 3584, 5, 128},
                              {17, 1024, 3, 32}, {17, 2048, 2, 64}, {37, 1024},        {17, 2048},        {16, 3584}};

}  // namespace lockstep::contract::matmul
