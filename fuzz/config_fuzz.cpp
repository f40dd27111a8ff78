// Any bytes as config.json and as generation_config.json: refused with words, or numbers that hold together.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "checkpoint/config.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const lockstep::checkpoint::Config& c) {
  require(c.vocab_size > 0 && c.hidden_size > 0 && c.intermediate_size > 0 && c.max_position_embeddings > 0);
  require(c.full_attention.size() == std::size_t(c.num_hidden_layers));
  require(c.num_attention_heads % c.num_key_value_heads == 0 && c.head_dim > 0 && c.head_dim <= 512);
  require(c.rotary_dim >= 2 && c.rotary_dim <= c.head_dim && c.rotary_dim % 2 == 0);
  require(c.rms_norm_eps > 0 && c.rope_theta >= 1 && c.rope_scaling.factor >= 1);
  // The largest products that a loader forms.
  require(c.num_attention_heads * c.head_dim * 2 <= (1 << 20) && c.vocab_size * c.hidden_size <= std::int64_t(1) << 40);
  if (c.model_type == "qwen3_5") require(c.linear_num_value_heads % c.linear_num_key_heads == 0 && c.linear_value_head_dim <= 256);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = lockstep::checkpoint::parse_config(text);
  if (config.ok())
    check(*config);
  else
    require(config.error().message.starts_with("config.json: ") && config.error().message.size() < 1000);
  const auto generation = lockstep::checkpoint::parse_generation_config(text);
  if (!generation.ok()) require(generation.error().message.starts_with("generation_config.json: "));
  return 0;
}
