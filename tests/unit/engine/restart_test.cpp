// The engine over a folder of kept states: what one engine computed, the next one resumes from, with equal tokens.
#include <gtest/gtest.h>

#include <future>

#include "engine/engine.h"
#include "support/fixtures.h"

namespace lockstep::testing {
namespace {

struct Answer {
  std::vector<std::int32_t> ids;
  lanes::Finish finish;
};

class Restart : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { LOCKSTEP_NEED_FIXTURE(checkpoint(GetParam())); }

  engine::EngineOptions options(bool disk) {
    engine::EngineOptions o;
    o.folder = checkpoint(GetParam());
    o.threads = 2;
    o.context = 512;
    o.memory_bytes = std::size_t(1) << 30;
    if (disk) o.prompt_cache_dir = temporary.path() / "cache";
    return o;
  }
  static std::unique_ptr<engine::Engine> start(const engine::EngineOptions& options) {
    auto engine = engine::Engine::create(options);
    if (!engine.ok()) throw std::runtime_error(engine.error().message);
    return std::move(engine).value();
  }
  static Answer ask(engine::Engine& engine, const std::vector<std::int32_t>& prompt, double temperature, const std::string& salt = "") {
    lanes::Request request;
    request.prompt_ids = prompt;
    request.max_tokens = 12;
    request.ignore_eos = true;
    request.sampling.temperature = temperature;
    request.sampling.seed = 5;
    request.cache_salt = salt;
    Answer answer;
    std::promise<void> done;
    const auto handle = engine.submit(request, [&](lanes::Event&& event) {
      answer.ids.insert(answer.ids.end(), event.token_ids.begin(), event.token_ids.end());
      if (!event.finish) return;
      answer.finish = *event.finish;
      done.set_value();
    });
    EXPECT_TRUE(handle.ok());
    if (handle.ok()) done.get_future().wait();
    return answer;
  }
  TempFolder temporary;
};

TEST_P(Restart, ResumesFromWhatTheLastEngineKept) {
  std::vector<std::int32_t> prompt, follow_up;
  for (int i = 0; i < 100; i++) prompt.push_back(20 + i * 7 % 500);
  Answer greedy, drawn, turn;
  {
    auto plain = start(options(false));
    greedy = ask(*plain, prompt, 0, "a");
    drawn = ask(*plain, prompt, 0.9, "b");
    follow_up = prompt;
    follow_up.insert(follow_up.end(), greedy.ids.begin(), greedy.ids.end());
    follow_up.push_back(30);
    turn = ask(*plain, follow_up, 0, "c");
  }
  {
    auto first = start(options(true));
    EXPECT_EQ(ask(*first, prompt, 0).ids, greedy.ids);
  }
  auto second = start(options(true));
  const Answer again = ask(*second, prompt, 0.9), next = ask(*second, follow_up, 0), other = ask(*second, prompt, 0, "salt");
  EXPECT_EQ(again.ids, drawn.ids);
  EXPECT_EQ(again.finish.usage.cached_tokens, 99);
  EXPECT_EQ(next.ids, turn.ids);
  EXPECT_EQ(next.finish.usage.cached_tokens, 111);  // one row before the reply's end
  EXPECT_EQ(other.ids, greedy.ids);
  EXPECT_EQ(other.finish.usage.cached_tokens, 0);
}

TEST_P(Restart, NeedsAPromptCacheAndAFolder) {
  auto without = options(true);
  without.prompt_cache_bytes = 0;
  const auto refused = engine::Engine::create(without);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("--prompt-cache-dir"), std::string::npos);
  const auto first = start(options(true));
  const auto second = engine::Engine::create(options(true));
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("another server uses it"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Restart, ::testing::Values("tiny-qwen3_5-mlx-4bit", "tiny-llama"),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace lockstep::testing
