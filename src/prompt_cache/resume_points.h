// Where a chat's prompt is worth resuming: the places its next versions share with it.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace lockstep::prompt_cache {

/// Prompt lengths in tokens, ascending: for each of `others` (renders of parts of the conversation, plain-text marks and all) the longest prefix of `ids` whose
/// text lies inside the text that `rendered` and it share. `ids` are rendered's; lengths 0 and the whole prompt are left out. Empty where
/// the tokens' bytes are not the rendered text (a normaliser changed it).
std::vector<std::int64_t> resume_points(const text::Tokenizer& tokenizer, std::span<const std::int32_t> ids, std::string_view rendered,
                                        std::span<const std::string> others);

}  // namespace lockstep::prompt_cache
