// Where the next request of a conversation will leave this prompt's tokens: positions whose state is worth keeping.
#pragma once
#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace lockstep::server::openai {

/// A prompt ends in what only this turn has (the opened assistant turn, an empty think block), and templates rewrite older turns, so a
/// state kept at its very end is seldom met again. Two renders tell where the next prompt parts from this one: one with a reply and a
/// further user turn behind it, and one with another text in the last message (which may be edited). Ascending, each in (0, ids.size()).
/// A hint: what is kept there is found by its tokens. `variables` are those that gave `rendered`; they are put back as they were.
std::vector<std::int64_t> resume_points(const engine::ModelInfo& model, boost::json::object& variables, const std::string& rendered,
                                        const std::vector<std::int32_t>& ids);

/// Tokens that `ids`, the encoding of `rendered`, shares with the encoding of `other`, found without encoding the shared text again.
std::int64_t shared_tokens(const text::Tokenizer& tokenizer, const std::string& rendered, const std::vector<std::int32_t>& ids, const std::string& other);

}  // namespace lockstep::server::openai
