// config.json and generation_config.json of a checkpoint: Hugging Face spellings, root or text_config, checked for absurd numbers.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/rope_table.h"

namespace lockstep::checkpoint {

/// MLX quantisation block (models.md 6.5): globals and per-module entries, module names normalised (weights.h).
struct Quantization {
  bool present = false;
  int bits = 0, group_size = 0;
  struct Override {
    bool plain = false;  // entry is false
    int bits = 0, group_size = 0;
  };
  std::map<std::string, Override> overrides;
};

struct Config {
  std::string model_type;  // "qwen3_5", "llama" (mistral without a sliding window too), "qwen3"; others are refused by name
  std::string written_model_type;  // as in the file, for `info`
  bool has_vision = false;         // vision_config is there (its tensors are skipped)
  std::int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0, num_key_value_heads = 0, head_dim = 0;
  std::int64_t max_position_embeddings = 0;
  double rms_norm_eps = 0;
  std::optional<bool> tie_word_embeddings;  // as written; the presence of a head weight decides (models.md 1.1, 7.1)
  bool attention_bias = false, mlp_bias = false;
  double rope_theta = 10000;
  kernels::RopeScaling rope_scaling;
  int rotary_dim = 0;  // head_dim * partial_rotary_factor
  std::vector<bool> full_attention;  // [num_hidden_layers]; true: full attention, false: Gated DeltaNet (qwen3_5 alone)
  // qwen3_5; zero elsewhere
  std::int64_t linear_num_key_heads = 0, linear_num_value_heads = 0, linear_key_head_dim = 0, linear_value_head_dim = 0;
  std::int64_t linear_conv_kernel_dim = 0;

  Quantization quantization;
  std::vector<std::int32_t> eos_token_ids;
};

/// Reads and checks config.json (first 4 MiB at most). Refuses by name what no kernel does: model types, activations, sliding windows, rope types,
/// quantisation methods and modes, numbers outside sane bounds. No weight file is opened.
Result<Config> read_config(const std::filesystem::path& folder);
/// The parser alone (fuzzing).
Result<Config> parse_config(std::string_view json);

/// generation_config.json; every field absent where the file or the field is.
struct GenerationConfig {
  std::optional<bool> do_sample;
  std::optional<double> temperature, top_p, min_p;
  std::optional<int> top_k;
  std::vector<std::int32_t> eos_token_ids;
};
Result<GenerationConfig> read_generation_config(const std::filesystem::path& folder);
/// The parser alone (fuzzing).
Result<GenerationConfig> parse_generation_config(std::string_view json);

}  // namespace lockstep::checkpoint
