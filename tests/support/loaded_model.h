// A model with its ledger and state store, for tests.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory/ledger.h"
#include "models/model.h"
#include "state/sequence_state.h"

namespace lockstep::testing {

struct LoadedModel {
  memory::Ledger ledger;
  std::unique_ptr<models::Model> model;
  std::unique_ptr<state::Store> store;

  explicit LoadedModel(const std::filesystem::path& folder, models::LoadOptions options = default_options()) {
    auto loaded = models::Model::load(folder, options, ledger);
    if (!loaded.ok()) throw std::runtime_error(loaded.error().message);
    model = std::move(loaded).value();
    store = std::make_unique<state::Store>(model->backend(), ledger);
  }

  static models::LoadOptions default_options() {
    models::LoadOptions options;
    options.isa = kernels::best_isa();
    options.threads = 2;
    options.max_rows = 512;
    options.max_logit_rows = 512;
    return options;
  }

  std::unique_ptr<state::SequenceState> sequence() { return std::move(state::SequenceState::create(*store)).value(); }

  /// Runs tokens in one forward (at most max_rows), all standing unless `stand` says less.
  void run(state::SequenceState& state, std::span<const std::int32_t> tokens, models::Segment::Logits logits, int stand = -1) {
    ASSERT_TRUE(state.prepare(std::int64_t(tokens.size())).ok());
    models::Segment segment{&state, tokens, stand < 0 ? int(tokens.size()) : stand, logits};
    model->forward(std::span(&segment, 1));
  }

  /// Any number of tokens, no logits.
  void run_prompt(state::SequenceState& state, std::span<const std::int32_t> tokens) {
    const std::size_t most = std::size_t(model->backend().max_rows());
    for (std::size_t at = 0; at < tokens.size(); at += most)
      run(state, tokens.subspan(at, std::min(most, tokens.size() - at)), models::Segment::Logits::kNone);
  }

  /// Logits of every row, in chunks of `chunk` rows, appended to `out` as f32.
  void run_chunks(state::SequenceState& state, std::span<const std::int32_t> tokens, std::size_t chunk, std::vector<float>& out) {
    for (std::size_t at = 0; at < tokens.size(); at += chunk) {
      const auto part = tokens.subspan(at, std::min(chunk, tokens.size() - at));
      run(state, part, models::Segment::Logits::kAll);
      for (std::size_t i = 0; i < part.size(); i++) {
        const auto row = model->logits(int(i));
        out.insert(out.end(), row.begin(), row.end());
      }
    }
  }
};

}  // namespace lockstep::testing
