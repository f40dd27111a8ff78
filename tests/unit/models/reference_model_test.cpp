// The float64 reference model against outputs of an independent implementation, and on every layout and format that no shared checkpoint has.
#include "support/reference_model.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "checkpoint/safetensors.h"
#include "support/family_tensors.h"
#include "support/fixtures.h"
#include "support/random_checkpoint.h"

namespace lockstep::testing {
namespace {

struct Folder {
  checkpoint::Config config;
  checkpoint::Weights weights;
};

Folder open(const std::filesystem::path& folder) {
  auto config = checkpoint::read_config(folder);
  if (!config.ok()) throw std::runtime_error(config.error().message);
  auto weights = checkpoint::Weights::open(folder, *config);
  if (!weights.ok()) throw std::runtime_error(weights.error().message);
  return {*config, std::move(weights).value()};
}

std::vector<std::vector<std::int32_t>> prompts() {
  std::ifstream file(oracle("prompts.json"));
  std::stringstream text;
  text << file.rdbuf();
  std::vector<std::vector<std::int32_t>> out;
  const boost::json::value document = boost::json::parse(text.str());
  for (const auto& prompt : document.as_array()) {
    out.emplace_back();
    for (const auto& id : prompt.at("ids").as_array()) out.back().push_back(std::int32_t(id.as_int64()));
  }
  return out;
}

struct OracleCase {
  const char* checkpoint;
  // Largest error over all logits. bf16 checkpoints: the oracle's norms, softmax and recurrence run in f32 (2^-24 of logits of 20: 1e-6, a few times
  // over). Quantised ones: the oracle rounds each weight to bf16 (relative 2^-9), the reference does not; logits of 20 move by some hundredths.
  double bound;
};

class ReferenceModel : public ::testing::TestWithParam<OracleCase> {};

TEST_P(ReferenceModel, EqualsTheOraclesFirstLogits) {
  const auto [name, bound] = GetParam();
  const auto wanted = oracle(std::string(name) + ".first_logits.safetensors");
  LOCKSTEP_NEED_FIXTURE(checkpoint(name));
  LOCKSTEP_NEED_FIXTURE(wanted);
  const Folder folder = open(checkpoint(name));
  const auto file = checkpoint::open_safetensors(wanted);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto ids = prompts();
  for (const std::size_t p : {std::size_t(0), std::size_t(2), std::size_t(15), std::size_t(17), std::size_t(19)}) {
    ASSERT_LE(ids[p].size(), 40u);
    const auto logits = reference_logits(folder.config, folder.weights, ids[p], ids[p].size() - 1);
    const TensorView& want = file->tensors.at("prompt_" + std::to_string(p));
    ASSERT_EQ(std::int64_t(logits.size()), want.elements());
    double worst = 0, largest = 0;
    for (std::size_t i = 0; i < logits.size(); i++) {
      float f;
      std::memcpy(&f, want.data + 4 * i, 4);
      worst = std::max(worst, std::abs(logits[i] - double(f)));
      largest = std::max(largest, std::abs(double(f)));
    }
    std::printf("  %s prompt %zu: %zu tokens, largest logit %.2f, largest error %.2e\n", name, p, ids[p].size(), largest, worst);
    EXPECT_LE(worst, bound) << name << " prompt " << p;
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, ReferenceModel,
                         ::testing::Values(OracleCase{"tiny-qwen3_5", 1e-4}, OracleCase{"tiny-llama", 1e-4}, OracleCase{"tiny-llama-drafter", 1e-4},
                                           OracleCase{"tiny-qwen3_5-mlx-4bit", 0.05}, OracleCase{"tiny-qwen3_5-mlx-mixed", 0.05},
                                           OracleCase{"tiny-llama-mlx-8bit", 0.05}),
                         [](const auto& info) { return test_name(info.param.checkpoint); });

constexpr std::int32_t kIds[] = {3, 500, 17, 17, 255, 0, 511, 42, 8, 99, 300, 301, 3, 500, 17, 64, 128, 5, 77, 401};

std::vector<double> random_logits(const RandomCheckpoint& spec) {
  const TempFolder folder;
  const auto written = write_random_checkpoint(spec, folder.path());
  if (!written.ok()) throw std::runtime_error(written.error().message);
  const Folder opened = open(folder.path());
  auto logits = reference_logits(opened.config, opened.weights, kIds);
  const auto all = opened.weights.check_all_used();
  if (!all.ok()) throw std::runtime_error(all.error().message);
  return logits;
}

double deviation(const std::vector<double>& a) {
  double sum = 0, squares = 0;
  for (double x : a) sum += x, squares += x * x;
  return std::sqrt(squares / double(a.size()) - sum / double(a.size()) * sum / double(a.size()));
}
double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); i++) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

TEST(RandomCheckpoints, LogitsOfEveryFamilyAndFormatAreSpread) {
  for (const char* preset : {"tiny-qwen3_5", "tiny-llama", "tiny-qwen3"}) {
    for (const Format format : {Format::kBf16, Format::kF16, Format::kF32, Format::kMlx}) {
      RandomCheckpoint spec = random_checkpoint_preset(preset).value();
      spec.format = format;
      const double spread = deviation(random_logits(spec));
      EXPECT_GT(spread, 1.5) << preset;
      EXPECT_LT(spread, 6) << preset;
    }
  }
}

TEST(RandomCheckpoints, F32RoundsToBf16) {
  // Matmul weights are rounded once to bf16, so a model whose other parameters are the same too has the same logits. Norms are the only others of
  // a Llama; here they move by less than 2^-10.
  RandomCheckpoint spec = random_checkpoint_preset("tiny-llama").value();
  const auto bf16 = random_logits(spec);
  spec.format = Format::kF32;
  const double f32 = largest_difference(bf16, random_logits(spec));
  EXPECT_GT(f32, 0);
  EXPECT_LT(f32, 0.05);
}

TEST(RandomCheckpoints, LayoutsAndShardsHoldTheSameWeights) {
  for (const Format format : {Format::kF32, Format::kMlx}) {
    RandomCheckpoint spec = random_checkpoint_preset("tiny-qwen3_5").value();
    spec.format = format;
    spec.converted = false;
    const auto raw = random_logits(spec);
    spec.shards = 5;
    EXPECT_EQ(largest_difference(raw, random_logits(spec)), 0);
    spec.shards = 1;
    spec.converted = true;
    // Converted norms are 1 + w, rounded to the stored type: f32, as the reference adds it, or bf16 (2^-9).
    EXPECT_LE(largest_difference(raw, random_logits(spec)), format == Format::kF32 ? 1e-9 : 0.5);
    spec.seed = 2;
    EXPECT_GT(largest_difference(raw, random_logits(spec)), 3);
  }
}

TEST(RandomCheckpoints, EverySwitchReachesTheLogits) {
  const auto moves = [](const char* preset, auto change) {
    RandomCheckpoint spec = random_checkpoint_preset(preset).value();
    const auto before = random_logits(spec);
    change(spec);
    return largest_difference(before, random_logits(spec));
  };
  using Type = kernels::RopeScaling::Type;
  EXPECT_GT(moves("tiny-llama", [](auto& s) { s.attention_bias = true; }), 0.1);
  EXPECT_GT(moves("tiny-llama", [](auto& s) { s.mlp_bias = true; }), 0.1);
  EXPECT_GT(moves("tiny-qwen3", [](auto& s) { s.attention_bias = true; }), 0.1);
  EXPECT_GT(moves("tiny-llama", [](auto& s) { s.rope_scaling = {Type::kLinear, 2, 1, 4, 8192}; }), 0.01);
  EXPECT_GT(moves("tiny-llama", [](auto& s) { s.rope_scaling.type = Type::kDefault; }), 1e-6);
  EXPECT_GT(moves("tiny-llama", [](auto& s) { s.tied = false; }), 1);
  EXPECT_GT(moves("tiny-qwen3_5", [](auto& s) { s.tied = false; }), 1);
  EXPECT_GT(moves("tiny-qwen3_5", [](auto& s) { s.layer_kinds = "flfl"; }), 1);
  // bf16 state parameters: A_log moves by 2^-9.
  const double state = moves("tiny-qwen3_5", [](auto& s) { s.state_f32 = false; });
  EXPECT_GT(state, 0);
  EXPECT_LT(state, 0.5);
}

TEST(RandomCheckpoints, MixedBitsOpenWithTheirOverrides) {
  RandomCheckpoint spec = random_checkpoint_preset("tiny-qwen3_5").value();
  spec.format = Format::kMlx;
  spec.converted = true;
  spec.scale_dtype = DType::kF16;
  spec.overrides = {{"*.down_proj", false, 5, 32}, {"*in_proj_[ab]", true, 0, 0}, {"embed_tokens", false, 8, 64}, {"layers.3.*_proj", false, 3, 32}};
  const double spread = deviation(random_logits(spec));
  EXPECT_GT(spread, 1.5);
  EXPECT_LT(spread, 6);
}

TEST(RandomCheckpoints, NonsenseIsRefused) {
  const auto refused = [](auto change) {
    RandomCheckpoint spec = random_checkpoint_preset("tiny-qwen3_5").value();
    change(spec);
    const TempFolder folder;
    const auto written = write_random_checkpoint(spec, folder.path());
    return !written.ok() && std::filesystem::is_empty(folder.path());
  };
  EXPECT_TRUE(refused([](auto& s) { s.bits = 7; }));
  EXPECT_TRUE(refused([](auto& s) { s.num_hidden_layers = -1; }));
  EXPECT_TRUE(refused([](auto& s) { s.num_hidden_layers = 1 << 30; }));
  EXPECT_TRUE(refused([](auto& s) { s.hidden_size = std::int64_t(1) << 62; }));
  EXPECT_TRUE(refused([](auto& s) { s.num_key_value_heads = 5; }));
  EXPECT_TRUE(refused([](auto& s) { s.family = "gpt2"; }));
  EXPECT_TRUE(refused([](auto& s) { s.layer_kinds = "lf"; }));
  EXPECT_TRUE(refused([](auto& s) { s.layer_kinds = "ffff"; }));
  EXPECT_TRUE(refused([](auto& s) { s.attention_bias = true; }));
  EXPECT_TRUE(refused([](auto& s) { s.overrides = {{"*", false, 4, 64}}; }));  // bf16 has no bits
  EXPECT_TRUE(refused([](auto& s) { s.shards = 0; }));
  EXPECT_TRUE(refused([](auto& s) { s.format = Format::kMlx, s.overrides = {{"*.o_proj", false, 4, 128}}, s.num_attention_heads = 2, s.head_dim = 32; }));
  EXPECT_FALSE(refused([](auto&) {}));
  // A folder with something in it is left alone.
  const TempFolder folder;
  folder.write("config.json", "mine");
  EXPECT_FALSE(write_random_checkpoint(random_checkpoint_preset("tiny-llama").value(), folder.path()).ok());
  EXPECT_EQ(std::filesystem::file_size(folder.path() / "config.json"), 4u);
}

}  // namespace
}  // namespace lockstep::testing
