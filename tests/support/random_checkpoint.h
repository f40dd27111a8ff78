// Checkpoints of random weights with any config, for tests and benchmarks: valid files that a loader cannot tell from real ones.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/tensor.h"
#include "kernels/rope_table.h"

namespace lockstep::testing {

enum class Format { kBf16, kF16, kF32, kMlx };

struct RandomCheckpoint {
  std::string family = "qwen3_5";  // "qwen3_5", "llama", "qwen3"
  std::int64_t vocab_size = 512, hidden_size = 128, intermediate_size = 256, num_hidden_layers = 4;
  std::int64_t num_attention_heads = 4, num_key_value_heads = 2, head_dim = 64, max_position_embeddings = 32768;
  double rms_norm_eps = 1e-6, rope_theta = 1e7, partial_rotary_factor = 0.25;  // the factor: qwen3_5 alone
  kernels::RopeScaling rope_scaling;
  bool attention_bias = false, mlp_bias = false, tied = true;
  // qwen3_5 alone
  std::int64_t linear_num_key_heads = 2, linear_num_value_heads = 4, linear_key_head_dim = 64, linear_value_head_dim = 64;
  std::int64_t full_attention_interval = 4;
  std::string layer_kinds;      // one letter a layer, 'l' linear or 'f' full; empty: the interval
  bool state_f32 = true;        // A_log and linear_attn.norm as F32 (3.5 releases); false: BF16
  bool converted = false;       // MLX layout: names, conv axes, norms stored as 1 + w; raw: as Hugging Face releases
  std::vector<std::int32_t> eos_token_ids = {1};

  Format format = Format::kBf16;
  int bits = 4, group_size = 64;          // kMlx
  DType scale_dtype = DType::kBF16;       // of scales and biases, kMlx
  struct Override {
    std::string pattern;  // shell pattern over normalised module names: "*.down_proj", "layers.0.*", "lm_head"
    bool plain = false;
    int bits = 0, group_size = 0;
  };
  std::vector<Override> overrides;  // the last one that matches counts
  std::uint64_t seed = 1;
  int shards = 1;
  std::filesystem::path tokenizer_folder;  // tokenizer files and chat template are copied from there; empty: none
};

/// Shapes of published models: "qwen3.5-0.8b", "qwen3.5-2b", "qwen3.5-4b", "qwen3.5-9b", "qwen3.5-27b", "llama-1b", "llama-3b", "llama-8b",
/// "nanbeige4.1-3b", "qwen3-0.6b" (models.md 1.3 and 7.4); small ones for tests: "tiny-qwen3_5", "tiny-llama", "tiny-qwen3".
Result<RandomCheckpoint> random_checkpoint_preset(const std::string& name);
std::vector<std::string> random_checkpoint_presets();

/// Writes config.json, the shards (with an index where there are several) and the tokenizer's files. `folder` must be absent or empty. The values of a
/// tensor depend on the seed and its normalised name alone, so layouts and shard counts of one seed hold the same weights, and F32 weights round to the
/// BF16 ones. Scales keep activations
/// near 1 and logits spread (standard deviation near 3). Memory used does not grow with the model.
Status write_random_checkpoint(const RandomCheckpoint& spec, const std::filesystem::path& folder);

}  // namespace lockstep::testing
