// Real bytes against the ledger: whatever lanes do, the states, pages and snapshots that exist never pass what the ledger says is held, and
// so never its budget; between rounds the two are equal. What is not in the ledger (token lists, queue entries) has a derived bound.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "lanes/scheduler.h"
#include "support/fixtures.h"
#include "support/lane_requests.h"
#include "text/tokenizer.h"
#include "unit/engine/recorder/allocation_recorder.h"

namespace lockstep::testing {
namespace {

constexpr std::size_t kPlenty = std::size_t(1) << 32;

struct Case {
  int parallel = 1;
  std::size_t budget = kPlenty, cache = 0;
  std::int64_t planted = 0;            // reservation that is refused
  std::map<int, int> cancel_at_round{};  // request to round
};

struct Outcome {
  Recorded most;
  memory::LedgerView end;
  lanes::SchedulerStats stats;
  std::int64_t attempts = 0, left_blocks = 0;
  int finishes = 0;
};

class LedgerRecorder : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto folder = checkpoint(GetParam());
    LOCKSTEP_NEED_FIXTURE(folder);
    tokenizer = std::move(text::Tokenizer::load(folder)).value();
    model = std::move(models::Model::load(folder, lane_options(), weights_ledger)).value();
    const kernels::StateLayout& layout = model->backend().layout();
    ASSERT_GE(layout.page_bytes, kBlock);
    stream_bytes = layout.sequence_bytes(140);
    run(lane_requests(4, 20, 4, 99), {.parallel = 4});  // what is made once and kept (OpenSSL, the formatter, thread-local storage)
  }

  Outcome run(const std::vector<lanes::Request>& requests, const Case& c) {
    memory::Ledger ledger(c.budget);
    Outcome out;
    int choices = 0;
    for (const auto& r : requests) choices += r.choices;
    {
      state::Store store(model->backend(), ledger);
      lanes::Scheduler scheduler(*model, store, {c.parallel, c.cache, {}, tokenizer->largest_id() + 1, tokenizer});
      ledger.plant_failure(c.planted);
      record(ledger);  // samplers are there; from here on blocks are states, pages and snapshots
      for (std::size_t i = 0; i < requests.size(); i++)
        scheduler.add(i + 1, requests[i], [&out](lanes::Event&& event) { out.finishes += event.finish.has_value(); });
      for (int round = 0; !scheduler.idle() && round < 100000; round++) {
        for (const auto& [request, at] : c.cancel_at_round)
          if (at == round) scheduler.cancel(std::uint64_t(request) + 1);
        if (!scheduler.idle()) scheduler.step();
        EXPECT_EQ(std::size_t(recorded().blocks), ledger.view().held_bytes) << "after round " << round;
      }
      out.stats = scheduler.stats();
    }
    out.most = recorded();
    out.left_blocks = stop_recording().blocks;
    out.end = ledger.view();
    out.attempts = ledger.attempts();
    EXPECT_EQ(out.most.over, 0) << "bytes that existed and were not held";
    EXPECT_EQ(out.left_blocks, 0);
    EXPECT_EQ(out.end.held_bytes, 0u);
    EXPECT_LE(std::size_t(out.most.peak_blocks), c.budget);
    EXPECT_EQ(out.most.mappings, 0);
    EXPECT_EQ(out.finishes, choices);
    EXPECT_LE(out.most.peak_small, slack(requests, out.stats)) << "bytes outside the ledger";
    return out;
  }

  // Bytes that no reservation covers: for a request its copy, list and text of tokens (three lists of 4 bytes, each at most twice as large
  // as needed and once more while it grows), a page table, and the fixed parts; for each kept state its tokens, pages and their counts.
  static std::int64_t slack(const std::vector<lanes::Request>& requests, const lanes::SchedulerStats& stats) {
    constexpr std::int64_t kFixed = 4096, kToken = 3 * 3 * 4, kPageOfToken = 120 / 32 + 1;
    std::int64_t longest = 0, bytes = kFixed;
    for (const auto& r : requests) {
      const std::int64_t tokens = std::int64_t(r.prompt_ids.size()) + r.max_tokens;
      longest = std::max(longest, tokens);
      bytes += r.choices * (kFixed + tokens * (kToken + kPageOfToken));
    }
    return bytes + stats.cache.inserted * (512 + longest * (4 + kPageOfToken)) + 2 * 8 * longest;
  }

  memory::Ledger weights_ledger;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::unique_ptr<models::Model> model;
  std::size_t stream_bytes = 0;
};

// 24 streams on a budget that holds 4, half of it for kept states: every admission must first evict or stop.
TEST_P(LedgerRecorder, ManyStreamsOnASmallBudget) {
  const auto outcome = run(lane_requests(24, 28, 40, 2), {.parallel = 24, .budget = 4 * stream_bytes, .cache = 2 * stream_bytes});
  EXPECT_GT(outcome.stats.stopped + outcome.stats.cache.evicted, 0);
  EXPECT_GT(std::size_t(outcome.most.peak_blocks), 3 * stream_bytes) << "the budget was not used";
}

// Streams that share a prefix with kept states, whose pages are copied when they are written.
TEST_P(LedgerRecorder, KeptStatesAndSharedPages) {
  const auto outcome = run(lane_requests(16, 80, 12, 3, 70), {.parallel = 4, .budget = 4 * stream_bytes, .cache = 2 * stream_bytes});
  EXPECT_GT(outcome.stats.cached_tokens, 0);
  EXPECT_GT(outcome.stats.cache.evicted, 0);
}

TEST_P(LedgerRecorder, ChoicesShareThePrompt) {
  auto several = lane_requests(3, 60, 12, 4);
  for (auto& r : several) r.choices = 4;
  for (const std::size_t budget : {3 * stream_bytes, kPlenty}) run(several, {.parallel = 8, .budget = budget, .cache = stream_bytes});
}

TEST_P(LedgerRecorder, RandomCancels) {
  std::mt19937 random(std::random_device{}());
  const auto seed = random();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  random.seed(seed);
  for (int turn = 0; turn < 8; turn++) {
    Case c{.parallel = 8, .budget = 4 * stream_bytes, .cache = turn % 2 * 2 * stream_bytes};
    for (int i = 0; i < 16; i++)
      if (random() % 2) c.cancel_at_round[i] = int(random() % 40);
    run(lane_requests(16, 30, 16, unsigned(random())), c);
  }
}

TEST_P(LedgerRecorder, RefusalAtEveryReservation) {
  const auto three = lane_requests(3, 40, 6, 4);
  const Case c{.parallel = 3, .cache = kPlenty};
  const std::int64_t all = run(three, c).attempts;
  ASSERT_GT(all, 3);
  for (std::int64_t n = 1; n <= all; n++) {
    Case planted = c;
    planted.planted = n;
    SCOPED_TRACE(n);
    run(three, planted);
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, LedgerRecorder, ::testing::Values("tiny-qwen3_5-mlx-4bit", "tiny-llama"),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace lockstep::testing
