#include "support/random_tensor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/bfloat16.h"
#include "base/check.h"
#include "base/float16.h"

namespace lockstep::testing {
namespace {

constexpr int kQuantiles = 4096;

// Normal quantiles at (i + 1/2) / 4096, by bisection on erfc: 12 random bits become a normal value by one look-up in the L1 cache.
const std::array<float, kQuantiles>& normal_quantiles() {
  static const auto table = [] {
    std::array<float, kQuantiles> q{};
    for (int i = 0; i < kQuantiles / 2; i++) {
      const double p = (i + 0.5) / kQuantiles;
      double low = -5, high = 0;
      for (int step = 0; step < 48; step++) {
        const double middle = (low + high) / 2;
        (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
      }
      q[i] = float(low);
      q[kQuantiles - 1 - i] = float(-low);
    }
    return q;
  }();
  return table;
}

std::uint64_t mix(std::uint64_t z) {
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return z ^ z >> 31;
}

void store(DType dtype, double value, std::byte* out) {
  const float f = float(value);
  const std::uint16_t bits16 = dtype == DType::kBF16 ? to_bf16(f) : float_to_half(f);
  if (dtype == DType::kF32)
    std::memcpy(out, &f, 4);
  else
    std::memcpy(out, &bits16, 2);
}

double stored(DType dtype, double value) {
  const float f = float(value);
  return dtype == DType::kBF16 ? to_float(to_bf16(f)) : dtype == DType::kF16 ? half_to_float(float_to_half(f)) : f;
}

}  // namespace

RandomTensorStream::RandomTensorStream(const RandomTensor& tensor, std::uint64_t seed) : tensor_(tensor) {
  state_ = mix(seed + 0x9E3779B97F4A7C15ull);
  for (unsigned char c : tensor.seed_name) state_ = mix((state_ ^ c) + 0x9E3779B97F4A7C15ull);
  if (tensor.fill != RandomTensor::Fill::kNormal) return;
  bf16_table_.resize(kQuantiles);
  for (int i = 0; i < kQuantiles; i++) bf16_table_[i] = to_bf16(float(tensor.mean + tensor.deviation * normal_quantiles()[i]));
}

std::uint64_t RandomTensorStream::draw() { return mix(state_ += 0x9E3779B97F4A7C15ull); }

double RandomTensorStream::value() {
  using Fill = RandomTensor::Fill;
  switch (tensor_.fill) {
    case Fill::kDecayLog: return std::log(1 + 15 * uniform());
    case Fill::kStepBias: return std::log(std::expm1(std::exp(std::log(0.001) + uniform() * std::log(100.0))));
    case Fill::kScale:
    case Fill::kScaleBias: {
      const std::uint64_t r = draw();
      const double levels = std::exp2(tensor_.bits), spread = std::sqrt((levels * levels - 1) / 12);
      const double scale = tensor_.deviation / spread * (0.75 + 0.5 * double(r >> 32) * 0x1p-32) * (r & 1 ? -1 : 1);
      if (tensor_.fill == Fill::kScale) return scale;
      return -stored(tensor_.dtype, scale) * (levels - 1) / 2;  // centres what the file holds
    }
    case Fill::kNormal:
    case Fill::kCodes: break;
  }
  LOCKSTEP_CHECK(false);
  return 0;
}

void RandomTensorStream::next(std::span<std::byte> bytes) {
  if (tensor_.fill == RandomTensor::Fill::kCodes) {
    for (std::size_t i = 0; i < bytes.size(); i += 8) {
      const std::uint64_t r = draw();
      std::memcpy(bytes.data() + i, &r, std::min<std::size_t>(8, bytes.size() - i));
    }
    return;
  }
  if (tensor_.fill == RandomTensor::Fill::kNormal) return next_normal(bytes);
  for (std::size_t i = 0; i < bytes.size(); i += dtype_bytes(tensor_.dtype)) store(tensor_.dtype, value(), bytes.data() + i);
}

void RandomTensorStream::next_normal(std::span<std::byte> bytes) {
  const std::size_t width = dtype_bytes(tensor_.dtype);
  for (std::size_t i = 0; i < bytes.size(); i += 4 * width) {
    const std::uint64_t r = draw();
    std::uint16_t four[4] = {bf16_table_[r & 4095], bf16_table_[r >> 16 & 4095], bf16_table_[r >> 32 & 4095], bf16_table_[r >> 48 & 4095]};
    const std::size_t left = std::min(4 * width, bytes.size() - i);
    if (tensor_.dtype == DType::kBF16) {
      if (tensor_.added != 0)
        for (auto& value : four) value = to_bf16(float(tensor_.added + to_float(value)));
      std::memcpy(bytes.data() + i, four, left);
      continue;
    }
    for (std::size_t lane = 0; lane * width < left; lane++) {
      const double jitter = double(mix(r + lane + 1) >> 32) * 0x1p-42 - 0x1p-11;  // below a quarter of a bf16 spacing
      const float value = float(double(to_float(four[lane])) * (1 + jitter));
      store(tensor_.dtype, tensor_.added + value, bytes.data() + i + lane * width);
    }
  }
}

}  // namespace lockstep::testing
