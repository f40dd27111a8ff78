// An engine::Engine without a model, for tests of the server: it answers what the prompt's own text asks for.
//
// Words it looks for anywhere in the prompt's text (each ends at a space):
//   say=TEXT      the reply, "_" for a space (default: a sentence with umlauts and emoji)
//   repeat=N      the reply this many times
//   fill=MS       time before the first token
//   delay=MS      time before each token
//   fail=N        after N tokens the reply fails with kNotFinite
// A prompt that ends inside a think block gets a thought first. Requests run one after another; max_tokens, stop strings, ignore_eos,
// cancel and the queue's bound work as the real engine's.
#pragma once
#include "engine/engine.h"

namespace lockstep::engine {

/// Options for a scripted engine: the tokenizer and template come from `folder`.
struct ScriptedEngine {
  static std::unique_ptr<Engine> create(const std::filesystem::path& folder, std::int64_t context = 4096, std::size_t max_queue = 256);
};

}  // namespace lockstep::engine
