// Lanes on a real model without threads or HTTP: streams in shared rounds equal their solo replies under any budget, at any cancel and with a refusal
// at any reservation; the ledger never passes its budget and returns to its idle value.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "lanes/scheduler.h"
#include "support/fixtures.h"
#include "support/lane_requests.h"
#include "text/tokenizer.h"

namespace lockstep::testing {
namespace {

struct Reply {
  std::vector<std::int32_t> ids;
  int finishes = 0, errors = 0, first_round = 0, end_round = 0;
  lanes::FinishReason reason = lanes::FinishReason::kError;
  lanes::Usage usage;
};

class Bench {
 public:
  explicit Bench(const std::filesystem::path& folder) {
    tokenizer_ = std::move(text::Tokenizer::load(folder)).value();
    model = std::move(models::Model::load(folder, lane_options(), weights_ledger)).value();
  }

  /// Runs all requests to their end on a scheduler of its own; each joins `stagger` rounds after the one before.
  struct Outcome {
    std::map<int, Reply> replies;
    lanes::SchedulerStats stats;
    memory::LedgerView end;
    std::int64_t evicted_while_queued = 0;
  };
  Outcome run(const std::vector<lanes::Request>& requests, int parallel, std::size_t budget, std::size_t cache, int stagger = 0,
              std::int64_t planted = 0, const std::map<int, int>& cancel_at_round = {}) {
    memory::Ledger ledger(budget);
    Outcome out;
    {
      state::Store store(model->backend(), ledger);
      lanes::SchedulerOptions options;
      options.parallel = parallel;
      options.prompt_cache_bytes = cache;
      options.stop_ids = {};
      options.vocabulary = tokenizer_->largest_id() + 1;
      options.tokenizer = tokenizer_;
      lanes::Scheduler scheduler(*model, store, options);
      ledger.plant_failure(planted);
      std::size_t next = 0;
      for (int round = 0; next < requests.size() || !scheduler.idle(); round++) {
        while (next < requests.size() && int(next) * stagger <= round) {
          Reply& reply = out.replies[int(next)];
          scheduler.add(next + 1, requests[next], [&reply, &round](lanes::Event&& event) {
            if (reply.ids.empty()) reply.first_round = round;
            reply.ids.insert(reply.ids.end(), event.token_ids.begin(), event.token_ids.end());
            if (!event.finish) return;
            reply.finishes++;
            reply.errors += event.finish->reason == lanes::FinishReason::kError;
            reply.end_round = round;
            reply.reason = event.finish->reason;
            reply.usage = event.finish->usage;
          });
          next++;
        }
        for (auto [request, at] : cancel_at_round)
          if (at == round) scheduler.cancel(std::uint64_t(request) + 1);
        if (!scheduler.idle()) scheduler.step();
        if (const auto stats = scheduler.stats(); stats.queued > 0) out.evicted_while_queued = stats.cache.evicted;
        EXPECT_LE(ledger.view().held_bytes, budget);
        if (round > 100000) throw std::runtime_error("the scheduler does not end");
      }
      out.stats = scheduler.stats();
    }
    out.end = ledger.view();
    attempts = ledger.attempts();
    return out;
  }

  std::vector<std::vector<std::int32_t>> solo(const std::vector<lanes::Request>& requests) {
    std::vector<std::vector<std::int32_t>> out;
    for (const auto& request : requests) out.push_back(run({request}, 1, kPlenty, 0).replies[0].ids);
    return out;
  }

  static constexpr std::size_t kPlenty = std::size_t(1) << 32;
  memory::Ledger weights_ledger;
  std::unique_ptr<models::Model> model;
  std::int64_t attempts = 0;

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_;
};

class Lanes : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto folder = checkpoint(GetParam());
    LOCKSTEP_NEED_FIXTURE(folder);
    bench = std::make_unique<Bench>(folder);
    stream_bytes = full_bytes(140);
  }
  void expect_solo(const Bench::Outcome& outcome, const std::vector<std::vector<std::int32_t>>& solo) {
    for (std::size_t i = 0; i < solo.size(); i++) {
      EXPECT_EQ(outcome.replies.at(int(i)).ids, solo[i]) << "stream " << i;
      EXPECT_EQ(outcome.replies.at(int(i)).finishes, 1);
    }
    EXPECT_EQ(outcome.end.held_bytes, 0u);
  }
  std::size_t page_bytes() const { return bench->model->backend().layout().page_bytes; }
  /// Of a stream of so many tokens.
  std::size_t full_bytes(std::int64_t tokens) const { return bench->model->backend().layout().sequence_bytes(tokens); }
  std::unique_ptr<Bench> bench;
  std::size_t stream_bytes = 0;
};

TEST_P(Lanes, SharedRoundsEqualSolo) {
  const auto requests = lane_requests(16, 20, 12, 1);
  const auto solo = bench->solo(requests);
  for (int stagger : {0, 1, 3}) {
    const auto outcome = bench->run(requests, 16, Bench::kPlenty, 0, stagger);
    expect_solo(outcome, solo);
    EXPECT_GT(outcome.stats.shared_rounds, 0);
    if (stagger == 0) {  // how many decode at once depends on the measured price of a row
      EXPECT_GT(outcome.stats.widest_round, 4);
    }
  }
}

// A stream that waits for another's end does not cost the kept states, which could not make enough room for it anyway.
TEST_P(Lanes, WaitingForMemoryDropsNoKeptState) {
  const auto requests = lane_requests(2, 900, 30, 9);
  const auto alone = bench->run({requests[0]}, 2, Bench::kPlenty, Bench::kPlenty);
  EXPECT_GT(alone.stats.cache.entries, 0);
  const std::size_t both = alone.stats.cache.bytes + stream_bytes;  // the first one, its kept states and a little
  const auto outcome = bench->run(requests, 2, both, both, 2);
  expect_solo(outcome, bench->solo(requests));
  EXPECT_EQ(outcome.stats.widest_round, 1);
  EXPECT_EQ(outcome.evicted_while_queued, 0);
}

// 24 streams on a budget that holds about 4: streams are stopped and recomputed, kept states evicted; all finish with their solo tokens.
TEST_P(Lanes, SmallBudgetStopsAndRecomputes) {
  auto requests = lane_requests(24, 28, 40, 2);
  const auto solo = bench->solo(requests);
  const auto outcome = bench->run(requests, 24, 4 * stream_bytes, stream_bytes, 0);
  expect_solo(outcome, solo);
  EXPECT_GT(outcome.stats.stopped + outcome.stats.cache.evicted, 0);
  EXPECT_LE(outcome.end.peak_bytes, 4 * stream_bytes);
}

TEST_P(Lanes, CancelsLeaveNoTrace) {
  const auto requests = lane_requests(8, 150, 20, 3);
  const auto solo = bench->solo(requests);
  const auto outcome = bench->run(requests, 4, Bench::kPlenty, 0, 1, 0, {{1, 2}, {3, 5}, {6, 8}, {7, 30}});
  for (int i : {0, 2, 4, 5}) EXPECT_EQ(outcome.replies.at(i).ids, solo[std::size_t(i)]) << i;
  for (int i : {1, 3, 6}) EXPECT_EQ(outcome.replies.at(i).reason, lanes::FinishReason::kCancelled) << i;
  EXPECT_EQ(outcome.end.held_bytes, 0u);
}

// A refusal at every reservation in turn: nothing is lost, every byte comes back.
TEST_P(Lanes, RefusalAtEveryReservation) {
  const auto requests = lane_requests(3, 40, 10, 4);
  const auto solo = bench->solo(requests);
  bench->run(requests, 3, Bench::kPlenty, Bench::kPlenty);
  const std::int64_t all = bench->attempts;
  ASSERT_GT(all, 3);
  for (std::int64_t n = 1; n <= all; n++) {
    const auto outcome = bench->run(requests, 3, Bench::kPlenty, Bench::kPlenty, 0, n);
    expect_solo(outcome, solo);
  }
}

TEST_P(Lanes, ChoicesShareThePrompt) {
  auto requests = lane_requests(1, 60, 8, 5);
  requests[0].sampling.temperature = 1.0;
  requests[0].choices = 4;
  for (int parallel : {1, 2, 4}) {
    const auto outcome = bench->run(requests, parallel, Bench::kPlenty, 0);
    EXPECT_LE(outcome.stats.rows, 60 + 4 * 8);  // the prompt once, then each choice's own rows
    EXPECT_EQ(outcome.replies.at(0).finishes, 4);
  }
}

// The oldest stream grows into all of the budget while another's choices wait on their prompt's kept state: that state is let go, all finish.
TEST_P(Lanes, PromptsHeldForChoicesMakeWayForTheOldest) {
  auto requests = lane_requests(2, 100, 700, 6);
  requests[1].prompt_ids.resize(60);
  requests[1].max_tokens = 400;
  requests[1].choices = 3;
  const auto solo = bench->solo({requests[0]});
  const auto outcome = bench->run(requests, 2, full_bytes(100 + 700) + 2 * full_bytes(0), 0);
  EXPECT_EQ(outcome.replies.at(0).ids, solo[0]);
  EXPECT_EQ(outcome.replies.at(0).errors, 0);
  EXPECT_EQ(outcome.replies.at(1).finishes, 3);
  EXPECT_EQ(outcome.replies.at(1).errors, 0);
  EXPECT_EQ(outcome.end.held_bytes, 0u);
}

// A normal request takes memory that background choices and their prompt hold; they are computed again after it.
TEST_P(Lanes, BackgroundChoicesMakeWayForANormalRequest) {
  auto requests = lane_requests(2, 200, 20, 7);
  requests[0].choices = 4;
  requests[0].priority = lanes::Priority::kBackground;
  requests[1].prompt_ids.resize(120);
  requests[1].prompt_ids.front() ^= 1;
  const auto solo = bench->solo({requests[1]});
  const auto outcome = bench->run(requests, 2, full_bytes(220) + full_bytes(0) + page_bytes(), 0, 8);
  EXPECT_EQ(outcome.replies.at(1).ids, solo[0]);
  EXPECT_EQ(outcome.replies.at(0).finishes, 4);
  EXPECT_EQ(outcome.replies.at(0).errors + outcome.replies.at(1).errors, 0);
  EXPECT_LT(outcome.replies.at(1).end_round, outcome.replies.at(0).end_round);
}

// A background prompt that fills does not hold up a normal one.
TEST_P(Lanes, ANormalPromptFillsBeforeABackgroundOne) {
  auto requests = lane_requests(2, 900, 8, 8);
  requests[0].priority = lanes::Priority::kBackground;
  requests[1].prompt_ids.resize(50);
  requests[1].max_tokens = 3;
  const auto solo = bench->solo(requests);
  const auto outcome = bench->run(requests, 2, Bench::kPlenty, 0, 1);
  expect_solo(outcome, solo);
  EXPECT_LT(outcome.replies.at(1).end_round, outcome.replies.at(0).first_round);
}

// What is evicted for a request is not the state it resumes from, though that was used longest ago. Budgets from where nothing is left for the
// last request's recurrent block beside three kept prompts and a running stream to where there is room for all.
TEST_P(Lanes, TheStateToRestoreIsNotEvicted) {
  auto requests = lane_requests(5, 40, 1, 9);
  const auto kept = bench->run({requests.begin(), requests.begin() + 3}, 1, Bench::kPlenty, Bench::kPlenty).stats.cache.bytes;
  requests[3].max_tokens = 60;
  requests[4] = requests[0];
  const auto solo = bench->solo(requests);
  const std::size_t taken = kept + full_bytes(49 + 60) + full_bytes(49);  // the running stream and its kept prompt
  for (std::size_t spare = 0; spare <= full_bytes(64); spare += std::max(page_bytes(), full_bytes(0) / 8)) {
    const auto outcome = bench->run(requests, 2, taken + spare, Bench::kPlenty, 10);
    expect_solo(outcome, solo);
    EXPECT_EQ(outcome.replies.at(4).usage.cached_tokens, 39) << spare;
  }
}

// Choices of a prompt that the cache has one row before its end: its state is theirs, though the first choice's own state takes its place.
TEST_P(Lanes, ChoicesShareAPromptThatWasKept) {
  auto requests = lane_requests(1, 60, 50, 10);
  const auto kept = bench->run(requests, 1, Bench::kPlenty, Bench::kPlenty, 0, 0, {{0, 5}}).stats.cache;  // its prompt's state alone
  EXPECT_EQ(kept.entries, 1);
  requests.push_back(requests[0]);
  requests[1].max_tokens = 8;
  requests[1].choices = 4;
  const auto outcome = bench->run(requests, 1, Bench::kPlenty, kept.bytes + page_bytes(), 10, 0, {{0, 5}});
  EXPECT_GT(outcome.stats.cache.evicted, 0);
  EXPECT_EQ(outcome.replies.at(1).usage.cached_tokens, 59);
  EXPECT_LE(outcome.stats.rows, 60 + 5 + 4 * 8);
  EXPECT_EQ(outcome.replies.at(1).finishes, 4);
}

// A state that is over the cache's limit by itself does not empty it.
TEST_P(Lanes, AStateOverTheCachesLimitEvictsNoOther) {
  auto requests = lane_requests(3, 40, 50, 11);
  requests[1] = lane_requests(1, 900, 4, 12)[0];
  requests[2] = requests[0];
  const auto kept = bench->run({requests[0]}, 1, Bench::kPlenty, Bench::kPlenty, 0, 0, {{0, 5}}).stats.cache;
  EXPECT_EQ(kept.entries, 1);
  const auto outcome = bench->run(requests, 1, Bench::kPlenty, kept.bytes, 10, 0, {{0, 5}});
  EXPECT_GT(outcome.stats.cache.refused, 0);
  EXPECT_EQ(outcome.replies.at(2).usage.cached_tokens, 39);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Lanes, ::testing::Values("tiny-qwen3_5-mlx-4bit", "tiny-llama"),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace lockstep::testing
