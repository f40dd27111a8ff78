// The parts of config.json that have rules of their own (config.cpp puts them together).
#pragma once
#include "checkpoint/config.h"
#include "checkpoint/json_file.h"

namespace lockstep::checkpoint {

/// rope_parameters, or the older flat rope_theta with rope_scaling; needs head_dim and model_type.
Status read_rope(const Fields& text, Config& config);
/// The `quantization` block of MLX conversions (models.md 6.5), from the root or, failing that, text_config.
Status read_quantization(const Fields& root, const Fields& text, Config& config);
/// eos_token_id, a number or a list, added to `ids` without repeats.
Status add_eos_ids(const Fields& fields, std::vector<std::int32_t>& ids);

}  // namespace lockstep::checkpoint
