// Every shared checkpoint: opens with all its tensors taken, or is refused by name.
#include <gtest/gtest.h>

#include "checkpoint/config.h"
#include "checkpoint/weights.h"
#include "support/family_tensors.h"
#include "support/fixtures.h"

namespace lockstep::checkpoint {
namespace {

struct Expected {
  const char* folder;
  const char* family;
  bool offset_norms;
  std::size_t files_bytes;  // of the safetensors files
  const char* formats;      // "format modules", joined
};

std::string formats_text(const Weights& weights) {
  std::string text;
  for (const auto& f : weights.formats()) text += (text.empty() ? "" : ", ") + f.format + " x" + std::to_string(f.modules);
  return text;
}

TEST(Fixtures, EveryCheckpointOpens) {
  const Expected cases[] = {
      {"tiny-qwen3_5", "qwen3_5", true, 14895280 + 14588816 + 10640224, "bf16 x63"},
      {"tiny-qwen3_5-mlx-4bit", "qwen3_5", false, 11357992, "4-bit group 64 x63"},
      {"tiny-qwen3_5-mlx-mixed", "qwen3_5", false, 13589848,
       "2-bit group 32 x1, 3-bit group 32 x2, 4-bit group 64 x30, 5-bit group 64 x16, 6-bit group 32 x2, 8-bit group 128 x1, 8-bit group 64 x1, bf16 x10"},
      {"tiny-llama", "llama", false, 15942000, "bf16 x57"},
      {"tiny-llama-mlx-8bit", "llama", false, 0, "8-bit group 64 x57"},
      {"tiny-llama-drafter", "llama", false, 3248944, "bf16 x22"},
  };
  for (const auto& e : cases) {
    SCOPED_TRACE(e.folder);
    const auto folder = testing::checkpoint(e.folder);
    LOCKSTEP_NEED_FIXTURE(folder);
    const auto config = read_config(folder);
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->model_type, e.family);
    EXPECT_EQ(config->vocab_size, 8064);
    const auto weights = Weights::open(folder, *config);
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    EXPECT_EQ(weights->norms_are_offset(), e.offset_norms);
    if (e.files_bytes) {
      EXPECT_EQ(weights->file_bytes(), e.files_bytes);
    }
    EXPECT_FALSE(weights->has("lm_head"));
    const auto all = testing::take_all_tensors(*config, *weights);
    EXPECT_TRUE(all.ok()) << all.error().message;
    EXPECT_EQ(formats_text(*weights), e.formats);
    const auto generation = read_generation_config(folder);
    ASSERT_TRUE(generation.ok()) << generation.error().message;
    EXPECT_EQ(generation->eos_token_ids, (std::vector<std::int32_t>{8002, 8000}));
  }
}

TEST(Fixtures, ConfigsHoldWhatTheyDeclare) {
  LOCKSTEP_NEED_FIXTURE(testing::checkpoint("tiny-qwen3_5"));
  const auto target = read_config(testing::checkpoint("tiny-qwen3_5"));
  ASSERT_TRUE(target.ok()) << target.error().message;
  EXPECT_EQ(target->full_attention, (std::vector<bool>{false, false, false, true, false, false, false, true}));
  EXPECT_EQ(target->rotary_dim, 64);
  EXPECT_EQ(target->rope_theta, 1e7);
  EXPECT_EQ(target->eos_token_ids, (std::vector<std::int32_t>{8000}));
  LOCKSTEP_NEED_FIXTURE(testing::checkpoint("tiny-llama"));
  const auto llama = read_config(testing::checkpoint("tiny-llama"));
  ASSERT_TRUE(llama.ok()) << llama.error().message;
  EXPECT_EQ(llama->rope_scaling.type, kernels::RopeScaling::Type::kLlama3);
  EXPECT_EQ(llama->rope_scaling.original_max_position_embeddings, 4096);
  EXPECT_EQ(llama->eos_token_ids, (std::vector<std::int32_t>{8002, 8000}));
  const auto mixed = read_generation_config(testing::checkpoint("tiny-qwen3_5-mlx-mixed"));
  ASSERT_TRUE(mixed.ok());
  EXPECT_EQ(mixed->do_sample, true);
  EXPECT_EQ(mixed->temperature, 0.7);
  EXPECT_EQ(mixed->top_k, 20);
  EXPECT_EQ(mixed->top_p, 0.95);
}

TEST(Fixtures, WhatCannotBeServedIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {{"tiny-qwen3_5-dflash", "DFlashDraftModel"},
                                                       {"tiny-qwen3_5-dflash2", "DFlash2DraftModel"},
                                                       {"tiny-qwen3_5-decision", "modeling_overrides.full_attention is \"block_bidirectional\""}};
  for (const auto& [name, words] : cases) {
    LOCKSTEP_NEED_FIXTURE(testing::checkpoint(name));
    const auto config = read_config(testing::checkpoint(name));
    ASSERT_FALSE(config.ok()) << name;
    EXPECT_EQ(config.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(config.error().message.find(words), std::string::npos) << config.error().message;
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
