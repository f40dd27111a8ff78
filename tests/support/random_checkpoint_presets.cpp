#include "support/random_checkpoint.h"

namespace lockstep::testing {
namespace {

struct Shape {
  const char* name;
  const char* family;
  std::int64_t layers, hidden, inner, heads, kv_heads, head_dim, vocab;
  bool tied;
  double eps, theta;
  double llama3_factor;  // 0: no scaling
  std::int64_t max_positions;
  std::int64_t key_heads, value_heads, linear_dim;  // qwen3_5
};

// models.md 1.3 and 7.4.
constexpr Shape kShapes[] = {
    {"qwen3.5-0.8b", "qwen3_5", 24, 1024, 3584, 8, 2, 256, 248320, true, 1e-6, 1e7, 0, 262144, 16, 16, 128},
    {"qwen3.5-2b", "qwen3_5", 24, 2048, 6144, 8, 2, 256, 248320, true, 1e-6, 1e7, 0, 262144, 16, 16, 128},
    {"qwen3.5-4b", "qwen3_5", 32, 2560, 9216, 16, 4, 256, 248320, true, 1e-6, 1e7, 0, 262144, 16, 32, 128},
    {"qwen3.5-9b", "qwen3_5", 32, 4096, 12288, 16, 4, 256, 248320, false, 1e-6, 1e7, 0, 262144, 16, 32, 128},
    {"qwen3.5-27b", "qwen3_5", 64, 5120, 17408, 24, 4, 256, 248320, false, 1e-6, 1e7, 0, 262144, 16, 48, 128},
    {"llama-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, true, 1e-5, 5e5, 32, 131072, 0, 0, 0},
    {"llama-3b", "llama", 28, 3072, 8192, 24, 8, 128, 128256, true, 1e-5, 5e5, 32, 131072, 0, 0, 0},
    {"llama-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, false, 1e-5, 5e5, 8, 131072, 0, 0, 0},
    {"nanbeige4.1-3b", "llama", 32, 2560, 10496, 20, 4, 128, 166144, false, 1e-5, 7e7, 0, 262144, 0, 0, 0},
    {"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, true, 1e-6, 1e6, 0, 40960, 0, 0, 0},
    // Head ratios above one and Nq != Nv everywhere: a model of one head hides mistakes in the order of heads.
    {"tiny-qwen3_5", "qwen3_5", 4, 192, 320, 6, 2, 64, 512, true, 1e-6, 1e7, 0, 32768, 2, 6, 32},
    {"tiny-llama", "llama", 3, 128, 320, 6, 2, 32, 512, true, 1e-5, 5e5, 8, 32768, 0, 0, 0},
    {"tiny-qwen3", "qwen3", 3, 128, 320, 6, 2, 32, 512, false, 1e-6, 1e6, 0, 32768, 0, 0, 0},
};

}  // namespace

std::vector<std::string> random_checkpoint_presets() {
  std::vector<std::string> names;
  for (const auto& s : kShapes) names.emplace_back(s.name);
  return names;
}

Result<RandomCheckpoint> random_checkpoint_preset(const std::string& name) {
  for (const auto& s : kShapes) {
    if (name != s.name) continue;
    RandomCheckpoint c;
    c.family = s.family;
    c.num_hidden_layers = s.layers, c.hidden_size = s.hidden, c.intermediate_size = s.inner;
    c.num_attention_heads = s.heads, c.num_key_value_heads = s.kv_heads, c.head_dim = s.head_dim;
    c.vocab_size = s.vocab, c.tied = s.tied, c.rms_norm_eps = s.eps, c.rope_theta = s.theta, c.max_position_embeddings = s.max_positions;
    if (s.llama3_factor > 0) c.rope_scaling = {kernels::RopeScaling::Type::kLlama3, s.llama3_factor, 1, 4, 8192};
    if (s.key_heads > 0) c.linear_num_key_heads = s.key_heads, c.linear_num_value_heads = s.value_heads;
    if (s.linear_dim > 0) c.linear_key_head_dim = c.linear_value_head_dim = s.linear_dim;
    return c;
  }
  std::string known;
  for (const auto& s : kShapes) known += std::string(known.empty() ? "" : ", ") + s.name;
  return Error{ErrorCode::kInvalidArgument, "there is no preset " + name + "; the presets are " + known, "preset"};
}

}  // namespace lockstep::testing
