// What a normalised tensor name says (models.md 2.2, 6.5, 6.6).
#pragma once
#include <string>

namespace lockstep::checkpoint {

/// Vision towers, MTP heads and stored rotary frequencies: a text engine has no use for them.
bool is_skipped_tensor(const std::string& normalised);
/// Name of the quantisation format whose tensors end like this and which is not MLX affine; nullptr for every other name.
const char* foreign_quantisation(const std::string& normalised);

}  // namespace lockstep::checkpoint
