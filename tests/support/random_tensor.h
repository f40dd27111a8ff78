// One tensor of a random checkpoint: its place in the file and a stream of its values.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/tensor.h"

namespace lockstep::testing {

struct RandomTensor {
  std::string name;       // as written
  std::string seed_name;  // what the values depend on, with the seed
  DType dtype = DType::kBF16;
  std::vector<std::int64_t> shape;
  enum class Fill {
    kNormal,     // mean + deviation * z; F32 values use every mantissa bit and round to the BF16 ones of the same seed
    kDecayLog,   // A_log: ln of a uniform value in [1, 16]
    kStepBias,   // dt_bias: softplus^-1 of a log-uniform value in [0.001, 0.1]
    kCodes,      // uniform codes of any width: random bits
    kScale,      // affine scale of a group, either sign, so that its weights have about `deviation`
    kScaleBias,  // the affine bias that centres the same group
  } fill = Fill::kNormal;
  double mean = 0, deviation = 0;
  int bits = 0;         // kScale, kScaleBias
  double added = 0;     // kNormal: added to the value before it is stored (1 + w of converted norms)
  std::int64_t elements() const {
    std::int64_t n = 1;
    for (auto d : shape) n *= d;
    return n;
  }
  std::size_t bytes() const { return std::size_t(elements()) * dtype_bytes(dtype); }
};

/// Values of one tensor from its first to its last element, in pieces of any size that is a multiple of kStep elements (the last may be shorter).
class RandomTensorStream {
 public:
  static constexpr std::int64_t kStep = 16;
  RandomTensorStream(const RandomTensor& tensor, std::uint64_t seed);
  /// The next bytes.size() / dtype_bytes elements.
  void next(std::span<std::byte> bytes);

 private:
  std::uint64_t draw();
  double uniform() { return double(draw() >> 11) * 0x1p-53; }
  double value();
  void next_normal(std::span<std::byte> bytes);
  const RandomTensor& tensor_;
  std::uint64_t state_ = 0;
  std::vector<std::uint16_t> bf16_table_;  // kNormal: one entry for each quantile
};

}  // namespace lockstep::testing
