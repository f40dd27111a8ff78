// The models in float64, straight from the formulas of models.md 3 and 7: token by token, naive attention, no rounding between operations. Only
// the weights are rounded, as the canonical arithmetic has them: f16 and f32 matmul weights once to bf16, embedding rows to bf16, quantised
// weights scale * code + bias unrounded in matmuls.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/weights.h"

namespace lockstep::testing {

/// Logits of rows [first_row, ids.size()) of one sequence, [rows][vocab_size]. Throws std::runtime_error with the loader's words. Time grows with
/// parameters times tokens: about a second for each 10^9.
std::vector<double> reference_logits(const checkpoint::Config& config, const checkpoint::Weights& weights, std::span<const std::int32_t> ids,
                                     std::size_t first_row = 0);

}  // namespace lockstep::testing
