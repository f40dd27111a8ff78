// E4: any two chunk sizes give the same logits bits at every row and the same fingerprint at every length; guesses that do not stand leave no trace;
// segments in one batch do not touch each other.
#include <cstring>
#include <random>

#include "base/sha256.h"
#include "support/fixtures.h"
#include "support/loaded_model.h"

namespace lockstep::testing {
namespace {

std::vector<std::int32_t> random_tokens(std::size_t n, std::int32_t below, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> tokens(n);
  for (auto& t : tokens) t = std::int32_t(random() % unsigned(below));
  return tokens;
}

bool equal_bits(std::span<const float> a, std::span<const float> b) { return a.size() == b.size() && !std::memcmp(a.data(), b.data(), a.size_bytes()); }

class Seams : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto folder = checkpoint(GetParam());
    LOCKSTEP_NEED_FIXTURE(folder);
    auto options = LoadedModel::default_options();
    options.max_rows = 2100;
    options.max_logit_rows = 2100;
    loaded = std::make_unique<LoadedModel>(folder, options);
  }
  std::unique_ptr<LoadedModel> loaded;
};

TEST_P(Seams, EveryChunkSizeGivesTheSameBits) {
  const auto tokens = random_tokens(2049, 8000, 1);
  auto whole = loaded->sequence();
  std::vector<float> reference;
  loaded->run_chunks(*whole, tokens, tokens.size(), reference);
  const std::string end = whole->fingerprint();
  std::vector<std::string> at_256;
  for (std::size_t n = 256; n <= tokens.size(); n += 256) {
    auto fresh = loaded->sequence();
    loaded->run(*fresh, std::span(tokens).first(n), models::Segment::Logits::kNone);
    at_256.push_back(fresh->fingerprint());
  }
  const std::size_t vocab = std::size_t(loaded->model->shape().vocab);
  for (std::size_t chunk : {1, 16, 37, 128}) {
    auto state = loaded->sequence();
    for (std::size_t at = 0; at < tokens.size(); at += chunk) {
      std::vector<float> logits;
      const auto part = std::span(tokens).subspan(at, std::min(chunk, tokens.size() - at));
      loaded->run_chunks(*state, part, chunk, logits);
      ASSERT_TRUE(equal_bits(logits, std::span(reference).subspan(at * vocab, part.size() * vocab))) << "chunk " << chunk << " at " << at;
      const std::size_t n = at + part.size();
      if (n % 256 == 0) {
        EXPECT_EQ(state->fingerprint(), at_256[n / 256 - 1]) << "chunk " << chunk << " length " << n;
      }
    }
    EXPECT_EQ(state->fingerprint(), end) << "chunk " << chunk;
  }
  for (std::size_t n = 256; n <= tokens.size(); n += 256) {  // lengths that chunks of 37 do not meet on their way
    auto prefix = loaded->sequence();
    for (std::size_t at = 0; at < n; at += 37)
      loaded->run(*prefix, std::span(tokens).subspan(at, std::min<std::size_t>(37, n - at)), models::Segment::Logits::kNone);
    EXPECT_EQ(prefix->fingerprint(), at_256[n / 256 - 1]) << "chunks of 37, length " << n;
  }
  // Control: one token changed must show.
  auto other = tokens;
  other[1000] ^= 1;
  auto changed = loaded->sequence();
  loaded->run(*changed, other, models::Segment::Logits::kNone);
  EXPECT_NE(changed->fingerprint(), end);
}

// Windows of 9 rows with wrong guesses after the root, some of them kept, cut anywhere (also across a chunk's border).
TEST_P(Seams, DroppedRowsLeaveNoTrace) {
  const auto tokens = random_tokens(150, 8000, 2);
  auto plain = loaded->sequence();
  std::vector<float> reference;
  loaded->run_chunks(*plain, tokens, 1, reference);
  const std::size_t vocab = std::size_t(loaded->model->shape().vocab);
  std::mt19937 random(3);
  for (int trial = 0; trial < 6; trial++) {
    auto state = loaded->sequence();
    std::size_t at = random() % 40;
    if (at) loaded->run(*state, std::span(tokens).first(at), models::Segment::Logits::kNone);
    while (at + 9 < tokens.size()) {
      const std::size_t right = random() % 9;  // guesses 1..right are the real tokens, the others are wrong
      std::vector<std::int32_t> window(tokens.begin() + std::ptrdiff_t(at), tokens.begin() + std::ptrdiff_t(at) + 9);
      for (std::size_t i = right + 1; i < 9; i++) window[i] = std::int32_t(random() % 8000);
      loaded->run(*state, window, models::Segment::Logits::kAll, 1);
      for (std::size_t i = 0; i <= right; i++)
        ASSERT_TRUE(equal_bits(loaded->model->logits(int(i)), std::span(reference).subspan((at + i) * vocab, vocab)))
            << "trial " << trial << " window at " << at << " row " << i;
      state->keep(int(right));
      at += right + 1;
    }
    auto fresh = loaded->sequence();
    loaded->run(*fresh, std::span(tokens).first(at), models::Segment::Logits::kNone);
    EXPECT_EQ(state->fingerprint(), fresh->fingerprint()) << "trial " << trial;
  }
}

// E2 in one forward: prompts, decode steps and windows of several sequences together equal each alone.
TEST_P(Seams, SegmentsDoNotTouchEachOther) {
  const auto a = random_tokens(70, 8000, 4), b = random_tokens(333, 8000, 5), c = random_tokens(9, 8000, 6);
  auto alone = [&](const std::vector<std::int32_t>& tokens) {
    auto state = loaded->sequence();
    std::vector<float> logits;
    loaded->run_chunks(*state, tokens, tokens.size(), logits);
    return std::pair(state->fingerprint(), logits);
  };
  const auto ra = alone(a), rb = alone(b), rc = alone(c);
  auto sa = loaded->sequence(), sb = loaded->sequence(), sc = loaded->sequence();
  loaded->run(*sa, std::span(a).first(69), models::Segment::Logits::kNone);
  const std::int32_t last = a.back();
  for (auto* s : {sa.get(), sb.get(), sc.get()}) ASSERT_TRUE(s->prepare(400).ok());
  std::vector<models::Segment> segments{{sa.get(), std::span(&last, 1), 1, models::Segment::Logits::kAll},
                                        {sb.get(), b, int(b.size()), models::Segment::Logits::kAll},
                                        {sc.get(), c, 1, models::Segment::Logits::kAll}};
  loaded->model->forward(segments);
  const std::size_t vocab = std::size_t(loaded->model->shape().vocab);
  EXPECT_TRUE(equal_bits(loaded->model->logits(0), std::span(ra.second).subspan(69 * vocab)));
  for (std::size_t i = 0; i < b.size(); i++)
    ASSERT_TRUE(equal_bits(loaded->model->logits(int(1 + i)), std::span(rb.second).subspan(i * vocab, vocab))) << i;
  for (std::size_t i = 0; i < c.size(); i++)
    ASSERT_TRUE(equal_bits(loaded->model->logits(int(1 + b.size() + i)), std::span(rc.second).subspan(i * vocab, vocab))) << i;
  sc->keep(int(c.size()) - 1);
  EXPECT_EQ(sa->fingerprint(), ra.first);
  EXPECT_EQ(sb->fingerprint(), rb.first);
  EXPECT_EQ(sc->fingerprint(), rc.first);
}

// E3 at the state: a kept state at any length, restored, goes on as a fresh pass would; the sequence it was taken from is undisturbed.
TEST_P(Seams, RestoredEqualsFresh) {
  const auto tokens = random_tokens(200, 8000, 7);
  auto fresh = loaded->sequence();
  loaded->run(*fresh, tokens, models::Segment::Logits::kNone);
  for (std::size_t cut : {1, 2, 3, 15, 16, 17, 31, 32, 33, 100, 128, 199}) {
    auto first = loaded->sequence();
    loaded->run(*first, std::span(tokens).first(cut), models::Segment::Logits::kNone);
    auto kept = first->save();
    ASSERT_TRUE(kept.ok());
    loaded->run(*first, std::span(tokens).subspan(cut), models::Segment::Logits::kNone);
    auto second = loaded->sequence();
    second->restore(**kept, (*kept)->length);
    loaded->run(*second, std::span(tokens).subspan(cut), models::Segment::Logits::kNone);
    EXPECT_EQ(first->fingerprint(), fresh->fingerprint()) << cut;
    EXPECT_EQ(second->fingerprint(), fresh->fingerprint()) << cut;
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Seams, ::testing::Values("tiny-qwen3_5", "tiny-qwen3_5-mlx-4bit", "tiny-llama"),
                         [](const auto& info) { return test_name(info.param); });

// E9: every instruction set the machine has gives the same logits bits and fingerprint.
TEST(InstructionSets, EqualBits) {
  for (const char* name : {"tiny-qwen3_5", "tiny-qwen3_5-mlx-4bit", "tiny-qwen3_5-mlx-mixed", "tiny-llama"}) {
    const auto folder = checkpoint(name);
    LOCKSTEP_NEED_FIXTURE(folder);
    const auto tokens = random_tokens(24, 8000, 8);
    std::string reference;
    for (kernels::Isa isa : kernels::available_isas()) {
      auto options = LoadedModel::default_options();
      options.isa = isa;
      LoadedModel loaded(folder, options);
      auto state = loaded.sequence();
      std::vector<float> logits;
      loaded.run_chunks(*state, tokens, 17, logits);
      Sha256 hash;
      hash.update(std::as_bytes(std::span(logits)));
      const std::string bits = hash.hex() + state->fingerprint();
      if (reference.empty()) reference = bits;
      EXPECT_EQ(bits, reference) << name << " " << kernels::isa_name(isa);
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
