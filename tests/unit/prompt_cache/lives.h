// A server's life as far as the prompt cache goes: ledger, store and cache over a folder, gone at its end as at a shutdown.
#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <thread>

#include "prompt_cache/prompt_cache.h"
#include "support/fixtures.h"
#include "support/loaded_model.h"

namespace lockstep::testing {

namespace fs = std::filesystem;
using Tokens = std::vector<std::int32_t>;

inline constexpr std::size_t kPlenty = std::size_t(1) << 32;

inline LoadedModel& shared_model(const std::string& name) {
  static std::map<std::string, std::unique_ptr<LoadedModel>> models;
  auto& model = models[name];
  if (!model) model = std::make_unique<LoadedModel>(checkpoint(name));
  return *model;
}

inline Tokens some_tokens(int n, int seed = 0) {
  Tokens tokens;
  for (int i = 0; i < n; i++) tokens.push_back(10 + (i * 37 + seed * 101 + i * i % 23) % 1000);
  return tokens;
}

struct Life {
  struct Options {
    std::size_t budget = kPlenty, memory = kPlenty, disk = kPlenty;
    std::string identity = "weights 1\ndevice a\n";
    prompt_cache::WriterOptions writer{};
  };
  LoadedModel& model;
  memory::Ledger ledger;
  state::Store store;
  std::unique_ptr<prompt_cache::PromptCache> cache;

  static Result<std::unique_ptr<prompt_cache::DiskTier>> open(state::Store& store, const fs::path& folder, const Options& o) {
    prompt_cache::DiskOptions disk;
    disk.folder = folder;
    disk.limit_bytes = o.disk;
    disk.identity = [o]() -> Result<std::string> { return o.identity; };
    disk.writer = o.writer;
    return prompt_cache::DiskTier::open(std::move(disk), store);
  }

  Life(LoadedModel& m, const fs::path& folder) : Life(m, folder, Options()) {}
  Life(LoadedModel& m, const fs::path& folder, Options o) : model(m), ledger(o.budget), store(m.model->backend(), ledger) {
    auto disk = open(store, folder, o);
    if (!disk.ok()) throw std::runtime_error(disk.error().message);
    const auto& layout = store.backend.layout();
    cache = std::make_unique<prompt_cache::PromptCache>(o.memory, layout.page_bytes, layout.recurrent_bytes == 0, std::move(disk).value());
  }
  const kernels::StateLayout& layout() { return store.backend.layout(); }
  prompt_cache::DiskStats disk() { return cache->stats().disk; }

  std::unique_ptr<state::SequenceState> sequence() { return std::move(state::SequenceState::create(store)).value(); }
  void insert(const Tokens& tokens, const std::string& salt = "") {
    auto state = sequence();
    model.run_prompt(*state, tokens);
    cache->insert(salt, tokens, std::move(state->save()).value());
  }
  prompt_cache::Hit find(const Tokens& tokens, const std::string& salt = "", std::size_t request_bytes = 0) {
    return cache->find(salt, tokens, std::int64_t(tokens.size()), request_bytes);
  }
  /// Waits until the writer is done with `n` states (written or not).
  void settle(std::int64_t n) {
    for (int i = 0; i < 6000 && disk().writes + disk().write_drops < n; i++) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      cache->find("", some_tokens(1, 999), 1);  // collects
    }
    ASSERT_GE(disk().writes + disk().write_drops, n);
  }
  std::string restored(const prompt_cache::Hit& hit) {
    auto state = sequence();
    state->restore(*hit.state, hit.length);
    return state->fingerprint();
  }
  std::string fresh(const Tokens& tokens) {
    auto state = sequence();
    model.run_prompt(*state, tokens);
    return state->fingerprint();
  }
};

inline std::vector<fs::path> files(const fs::path& folder) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(folder)) out.push_back(entry.path());
  return out;
}
inline std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
inline void overwrite(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(text.data(), std::streamsize(text.size()));
}

}  // namespace lockstep::testing
