// What no published fixture covers, on random weights against the float64 reference model: dense Qwen3, biases, linear and llama3 rotary scaling,
// untied heads, f16 and f32 files, every bit width, raw and converted layouts, value heads shared two and three to a key head.
#include <algorithm>
#include <cmath>
#include <random>

#include "support/fixtures.h"
#include "support/loaded_model.h"
#include "support/random_checkpoint.h"
#include "support/reference_model.h"

namespace lockstep::testing {
namespace {

struct Spec {
  const char* name;
  void (*change)(RandomCheckpoint&);
};

RandomCheckpoint make(const char* family, void (*change)(RandomCheckpoint&)) {
  RandomCheckpoint c;
  c.family = family;
  if (c.family != "qwen3_5") c.rope_theta = 10000;
  change(c);
  return c;
}

// Relative error of a logit: every layer stores about ten bf16 values between residual and residual, each with a relative rounding of at most
// 2^-9, uniform, so a standard deviation of 2^-9 / sqrt(3); independent roundings add in squares. Logits are sums over the last residual, so the
// error of a logit over the spread of logits is about that of the residual. Three of those for the median, twelve for the largest of a few thousand.
// A DeltaNet layer has no such largest: its gated norm divides by the size of an output that may cancel to almost nothing (a query nearly
// orthogonal to every key so far), which scales that row's rounding without limit; there the twelve are for the 99th percentile.
double rounding(const RandomCheckpoint& c) { return std::sqrt(10.0 * double(c.num_hidden_layers)) * 0x1p-9 / std::sqrt(3.0); }

struct Errors {
  double median = 0, percentile_99 = 0, largest = 0;  // relative to the spread (standard deviation) of the reference's logits
};

Errors compare(const RandomCheckpoint& spec, const std::filesystem::path& folder) {
  const auto config = checkpoint::read_config(folder);
  if (!config.ok()) throw std::runtime_error(config.error().message);
  const auto weights = checkpoint::Weights::open(folder, *config);
  if (!weights.ok()) throw std::runtime_error(weights.error().message);
  std::mt19937 random(11);
  std::vector<std::int32_t> ids(150);  // past an attention tile and nine DeltaNet chunks
  for (auto& id : ids) id = std::int32_t(random() % unsigned(spec.vocab_size));
  const std::vector<double> reference = reference_logits(*config, *weights, ids);
  LoadedModel loaded(folder);
  auto state = loaded.sequence();
  std::vector<float> logits;
  loaded.run_chunks(*state, ids, 37, logits);
  double sum = 0, squares = 0;
  for (double v : reference) sum += v, squares += v * v;
  const double n = double(reference.size()), spread = std::sqrt(squares / n - sum / n * (sum / n));
  std::vector<double> errors(reference.size());
  for (std::size_t i = 0; i < reference.size(); i++) errors[i] = std::abs(double(logits[i]) - reference[i]) / spread;
  std::sort(errors.begin(), errors.end());
  return {errors[errors.size() / 2], errors[errors.size() * 99 / 100], errors.back()};
}

class RandomReference : public ::testing::TestWithParam<std::pair<const char*, Spec>> {};

TEST_P(RandomReference, LogitsAgree) {
  const RandomCheckpoint spec = make(GetParam().first, GetParam().second.change);
  TempFolder folder;
  const auto path = folder.path() / "checkpoint";
  const Status written = write_random_checkpoint(spec, path);
  ASSERT_TRUE(written.ok()) << written.error().message;
  const Errors errors = compare(spec, path);
  std::printf("%s %s: error of a logit over their spread: median %.4f, 99th percentile %.4f, largest %.4f (rounding %.4f)\n",
              GetParam().first, GetParam().second.name, errors.median, errors.percentile_99, errors.largest, rounding(spec));
  EXPECT_LE(errors.median, 3 * rounding(spec));
  EXPECT_LE(spec.family == "qwen3_5" ? errors.percentile_99 : errors.largest, 12 * rounding(spec));
}

using Change = RandomCheckpoint;
INSTANTIATE_TEST_SUITE_P(
    Specs, RandomReference,
    ::testing::Values(
        std::pair{"qwen3", Spec{"plain", [](Change&) {}}},
        std::pair{"qwen3", Spec{"untied_mlx6", [](Change& c) { c.tied = false, c.format = Format::kMlx, c.bits = 6; }}},
        std::pair{"llama", Spec{"attention_bias", [](Change& c) { c.attention_bias = true; }}},
        std::pair{"llama", Spec{"all_biases_mlx4", [](Change& c) { c.attention_bias = c.mlp_bias = true, c.format = Format::kMlx; }}},
        std::pair{"llama", Spec{"linear_scaling",
                                [](Change& c) { c.rope_scaling.type = kernels::RopeScaling::Type::kLinear, c.rope_scaling.factor = 4; }}},
        std::
            pair{
                "llama",
                Spec{
                    "llama3_scaling",
                    [](Change& c) {
                      c.rope_scaling = {kernels::RopeScaling::Type::kLlama3, 8, 1, 4, 64};
                    }}},
        std::pair{"llama", Spec{"untied", [](Change& c) { c.tied = false; }}},
        std::pair{"llama", Spec{"f16", [](Change& c) { c.format = Format::kF16; }}},
        std::pair{"llama", Spec{"f32", [](Change& c) { c.format = Format::kF32; }}},
        std::pair{"llama", Spec{"wide_heads", [](Change& c) { c.head_dim = 128; }}}, std::pair{"qwen3_5", Spec{"raw", [](Change&) {}}},
        std::pair{"qwen3_5", Spec{"untied_f32", [](Change& c) { c.tied = false, c.format = Format::kF32; }}},
        std::pair{"qwen3_5", Spec{"three_value_heads_bf16_state",
                                  [](Change& c) { c.linear_num_value_heads = 6, c.num_attention_heads = 6, c.state_f32 = false; }}},
        std::pair{"qwen3_5", Spec{"irregular_layers", [](Change& c) { c.layer_kinds = "flfl"; }}},
        std::
            pair{
                "qwen3_5",
                Spec{
                    "mlx_mixed",
                    [](Change& c) {
                      c.converted = true, c.format = Format::kMlx, c.scale_dtype = DType::kF16;
                      c.overrides = {{"layers.0.*", false, 2, 32},
                                     {"layers.1.*", false, 3, 64},
                                     {"layers.2.*", false, 5, 128},
                                     {"*.down_proj", false, 8, 64}};
                    }}}),
    [](const auto& info) { return std::string(info.param.first) + "_" + info.param.second.name; });

// Control: a bias that is left out must show.
TEST(RandomReferenceControl, MissingBiasIsFound) {
  RandomCheckpoint spec = make("llama", [](Change& c) { c.attention_bias = true; });
  TempFolder folder;
  const auto with = folder.path() / "with", without = folder.path() / "without";
  ASSERT_TRUE(write_random_checkpoint(spec, with).ok());
  spec.attention_bias = false;
  ASSERT_TRUE(write_random_checkpoint(spec, without).ok());
  const auto config = checkpoint::read_config(with);
  const auto weights = checkpoint::Weights::open(with, *config);
  std::vector<std::int32_t> ids{5, 6, 7, 8, 9, 10, 11, 12};
  const auto reference = reference_logits(*config, *weights, ids);
  LoadedModel loaded(without);
  auto state = loaded.sequence();
  std::vector<float> logits;
  loaded.run_chunks(*state, ids, 8, logits);
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < logits.size(); i++) {
    worst = std::max(worst, std::abs(double(logits[i]) - reference[i]));
    largest = std::max(largest, std::abs(reference[i]));
  }
  EXPECT_GT(worst, 0.2 * largest);
}

}  // namespace
}  // namespace lockstep::testing
