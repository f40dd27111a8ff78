// What bounds the disk tier: its limit, the writer's queue, the ledger. Speed may suffer, nothing else.
#include <future>

#include "unit/prompt_cache/lives.h"

namespace lockstep::testing {
namespace {

class DiskLimits : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    LOCKSTEP_NEED_FIXTURE(checkpoint(GetParam()));
    model = &shared_model(GetParam());
    const auto& layout = model->model->backend().layout();
    any_prefix = layout.recurrent_bytes == 0;
    state_bytes = prompt_cache::state_file_bytes(layout, 0, 40) + prompt_cache::page_file_bytes(layout);
    memory_bytes = prompt_cache::recurrent_bytes(layout, 40) + 2 * layout.page_bytes;
    folder = temporary.path() / "cache";
  }
  static prompt_cache::WriterOptions slow(int ms) {
    prompt_cache::WriterOptions options;
    options.before_file = [ms] { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
    return options;
  }
  TempFolder temporary;
  fs::path folder;
  LoadedModel* model = nullptr;
  bool any_prefix = false;
  std::size_t state_bytes = 0, memory_bytes = 0;  // of a state of 40 tokens
};

TEST_P(DiskLimits, LeastRecentlyUsedGoesFirst) {
  Life::Options options;
  options.disk = 3 * state_bytes;
  {
    Life life(*model, folder, options);
    for (int i : {0, 1, 2}) life.insert(some_tokens(40, i)), life.settle(i + 1);
    life.find(some_tokens(40, 0));  // in memory, but it counts
    life.insert(some_tokens(40, 3)), life.settle(4);
    EXPECT_EQ(life.disk().evictions, 1);
    EXPECT_LE(life.disk().bytes, options.disk);
  }
  {
    Life life(*model, folder, options);
    EXPECT_EQ(life.cache->longest("", some_tokens(40, 1), 40), 0);
    for (int i : {0, 2, 3}) EXPECT_EQ(life.cache->longest("", some_tokens(40, i), 40), 40) << i;
    EXPECT_EQ(life.find(some_tokens(40, 2)).length, 40);
  }
  options.disk = state_bytes;  // lowered: the files' times say who stays
  Life life(*model, folder, options);
  EXPECT_EQ(life.disk().states, 1);
  EXPECT_EQ(life.disk().evictions, 2);
  EXPECT_EQ(life.find(some_tokens(40, 2)).length, 40);
  EXPECT_EQ(files(folder / "states").size(), 1u);
  EXPECT_EQ(files(folder / "pages").size(), 1u);
}

TEST_P(DiskLimits, AStateAboveTheLimitIsNotWritten) {
  Life::Options options;
  options.disk = state_bytes;
  Life life(*model, folder, options);
  life.insert(some_tokens(40)), life.settle(1);
  life.insert(some_tokens(140)), life.settle(2);
  EXPECT_EQ(life.disk().write_drops, 1);
  EXPECT_EQ(life.disk().states, 1);  // and evicts nothing
}

TEST_P(DiskLimits, AFullQueueDropsWritesAlone) {
  std::promise<void> inserted;
  Life::Options options;
  options.writer.before_file = [all = inserted.get_future().share()] { all.wait(); };
  options.writer.most_jobs = 1;
  Life life(*model, folder, options);
  for (int i = 0; i < 6; i++) life.insert(some_tokens(40, i));
  inserted.set_value();
  life.settle(6);
  EXPECT_GT(life.disk().write_drops, 0);
  EXPECT_GT(life.disk().writes, 0);
  EXPECT_EQ(life.cache->stats().entries, 6);
  for (int i = 0; i < 6; i++) EXPECT_EQ(life.restored(life.find(some_tokens(40, i))), life.fresh(some_tokens(40, i)));
}

// "Nothing left to evict" must mean that the writer holds nothing either.
TEST_P(DiskLimits, PressureTakesBackWhatTheWriterHolds) {
  Life::Options options;
  options.writer = slow(20);
  options.memory = 1;  // memory keeps nothing: the writer alone holds the states
  Life life(*model, folder, options);
  for (int i = 0; i < 5; i++) life.insert(some_tokens(40, i));
  EXPECT_EQ(life.cache->stats().entries, 0);
  EXPECT_GT(life.ledger.view().held_bytes, life.layout().page_bytes);
  EXPECT_TRUE(life.cache->evict_one());
  EXPECT_EQ(life.ledger.view().held_bytes, life.layout().page_bytes);
  EXPECT_FALSE(life.cache->evict_one());
  EXPECT_EQ(life.disk().writes + life.disk().write_drops, 5);
  EXPECT_GT(life.disk().write_drops, 0);
  EXPECT_EQ(std::ssize(files(folder / "states")), life.disk().states);
}

TEST_P(DiskLimits, AnEvictedStateIsNotHeldForAWriteThatHasNotBegun) {
  Life::Options options;
  options.writer = slow(100);
  Life life(*model, folder, options);
  for (int i = 0; i < 3; i++) life.insert(some_tokens(40, i));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the first is being written
  while (life.cache->stats().entries > 0) ASSERT_TRUE(life.cache->evict_one());
  EXPECT_LE(life.ledger.view().held_bytes, memory_bytes + life.layout().page_bytes);
}

TEST_P(DiskLimits, ShutdownWritesTheQueueButNotForEver) {
  Life::Options options;
  options.writer = slow(20);
  {
    Life life(*model, folder, options);
    for (int i = 0; i < 4; i++) life.insert(some_tokens(40, i));
  }
  EXPECT_EQ(Life(*model, folder).disk().states, 4);
  fs::remove_all(folder);
  options.writer = slow(400);
  options.writer.at_end = std::chrono::milliseconds(60);
  {
    Life life(*model, folder, options);
    for (int i = 0; i < 4; i++) life.insert(some_tokens(40, i));
  }
  Life life(*model, folder);
  EXPECT_LT(life.disk().states, 4);
  EXPECT_EQ(life.disk().broken, 0);
}

TEST_P(DiskLimits, WithoutRoomInTheLedgerMemoryServes) {
  {
    Life life(*model, folder);
    life.insert(some_tokens(40));
    life.insert(some_tokens(200));
  }
  Life::Options options;
  options.budget = memory_bytes + 2 * model->model->backend().layout().page_bytes;
  Life life(*model, folder, options);
  const std::size_t idle = life.ledger.view().held_bytes;
  EXPECT_EQ(life.cache->longest("", some_tokens(200), 200), 200);
  EXPECT_EQ(life.find(some_tokens(200)).length, 0);
  EXPECT_EQ(life.disk().broken, 0);
  EXPECT_EQ(life.disk().states, 2);  // not its fault
  EXPECT_EQ(life.ledger.view().held_bytes, idle);
  EXPECT_EQ(life.find(some_tokens(40), "", 2 * memory_bytes).length, 0);  // beside the request's own pages there is no room
  EXPECT_EQ(life.find(some_tokens(40)).length, 40);
  EXPECT_EQ(life.cache->stats().entries, 1);
}

TEST_P(DiskLimits, StatesInMemoryMakeWayForOneOnDisk) {
  { Life(*model, folder).insert(some_tokens(40, 7)); }
  Life::Options options;
  options.budget = 2 * memory_bytes + model->model->backend().layout().page_bytes + model->model->backend().layout().recurrent_bytes;
  Life life(*model, folder, options);
  for (int i : {0, 1}) life.insert(some_tokens(40, i)), life.settle(i + 1);
  const auto evicted = life.cache->stats().evicted;
  EXPECT_EQ(life.find(some_tokens(40, 7), "", 2 * memory_bytes - memory_bytes / 2).length, 40);
  EXPECT_GT(life.cache->stats().evicted, evicted);
}

TEST_P(DiskLimits, ARefusalAtAnyReservationOfALoad) {
  { Life(*model, folder).insert(some_tokens(100)); }
  Life life(*model, folder);
  const std::size_t idle = life.ledger.view().held_bytes;
  int refused = 0;
  for (;; refused++) {
    life.ledger.plant_failure(refused + 1);
    if (life.find(some_tokens(100)).length == 100) break;
    ASSERT_LT(refused, 50);
    EXPECT_EQ(life.ledger.view().held_bytes, idle);
    EXPECT_EQ(life.disk().broken, 0);
  }
  EXPECT_GE(refused, 4);
}

TEST_P(DiskLimits, AFullDiskIsNoFailure) {
  Life life(*model, folder);
  fs::remove_all(folder / "pages");  // nothing can be created there
  life.insert(some_tokens(40));
  life.settle(1);
  EXPECT_EQ(life.disk().write_drops, 1);
  EXPECT_EQ(life.disk().states, 0);
  EXPECT_EQ(life.find(some_tokens(40)).length, 40);
}

// Where every prefix serves, a longer state on disk serves a shorter one; what memory shares of it is only as long as the common prefix.
TEST_P(DiskLimits, ShorterPrefixesOfAStateOnDisk) {
  const Tokens tokens = some_tokens(100);
  { Life(*model, folder).insert(tokens); }
  Tokens other(tokens.begin(), tokens.begin() + 75);
  other.resize(90, 3);
  for (bool in_memory : {false, true}) {
    Life life(*model, folder);
    Tokens diverging(tokens.begin(), tokens.begin() + 34);
    diverging.resize(100, 4);
    if (in_memory) life.insert(diverging);
    const auto hit = life.find(other);
    if (!any_prefix) {
      EXPECT_EQ(hit.length, 0);
      continue;
    }
    ASSERT_EQ(hit.length, 75);
    EXPECT_EQ(life.restored(hit), life.fresh(Tokens(tokens.begin(), tokens.begin() + 75)));
    EXPECT_EQ(life.cache->find("", tokens, 64).length, 64);
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, DiskLimits, ::testing::Values("tiny-qwen3_5-mlx-4bit", "tiny-llama"),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace lockstep::testing
