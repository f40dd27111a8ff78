// cos and sin of every position, built once on the host and shared by all backends (EXACTNESS item 7).
#pragma once
#include <cstdint>
#include <vector>

#include "base/result.h"

namespace lockstep::kernels {

/// Rotary scaling: default, linear (angle / factor) or llama3.
struct RopeScaling {
  enum class Type { kDefault, kLinear, kLlama3 } type = Type::kDefault;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  double original_max_position_embeddings = 8192;
};

/// Inverse frequencies [rotary_dim / 2], computed in float64 (base/exact_math.h) and rounded once to f32.
std::vector<float> rope_inverse_frequencies(int rotary_dim, double theta, const RopeScaling& scaling);

/// cos[p * rotary_dim / 2 + j], sin alike, for p in [0, positions): angle = f32(p) * inv[j] in f32, three-part reduction and one polynomial.
struct RopeTable {
  int rotary_dim = 0;
  std::int64_t positions = 0;
  std::vector<float> cos, sin;
};
/// fma_instruction false: the library's fma on every chip; the bits are equal (contract).
RopeTable make_rope_table(int rotary_dim, double theta, const RopeScaling& scaling, std::int64_t positions, bool fma_instruction = true);

}  // namespace lockstep::kernels
