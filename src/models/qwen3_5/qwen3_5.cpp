#include "models/qwen3_5/qwen3_5.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

namespace lockstep::models::qwen3_5 {
namespace {

class Qwen35 final : public Model {
 public:
  struct Layer {
    std::variant<kernels::AttentionLayer, kernels::DeltaNetLayer> mixer;
    kernels::MlpLayer mlp;
  };
  std::vector<Layer> layers;

 private:
  void run_layers() override {
    for (const Layer& layer : layers) {
      if (const auto* attention = std::get_if<kernels::AttentionLayer>(&layer.mixer)) backend_->attention_mixer(*attention);
      else backend_->delta_net_mixer(std::get<kernels::DeltaNetLayer>(layer.mixer));
      backend_->mlp(layer.mlp);
    }
  }
};

}  // namespace

kernels::ModelShape shape(const checkpoint::Config& c) {
  kernels::ModelShape s;
  s.hidden = c.hidden_size;
  s.intermediate = c.intermediate_size;
  s.vocab = c.vocab_size;
  s.heads = c.num_attention_heads;
  s.kv_heads = c.num_key_value_heads;
  s.head_dim = c.head_dim;
  s.output_gate = true;
  s.attention_layers = int(std::count(c.full_attention.begin(), c.full_attention.end(), true));
  s.delta_net_layers = int(c.full_attention.size()) - s.attention_layers;
  s.key_heads = c.linear_num_key_heads;
  s.value_heads = c.linear_num_value_heads;
  s.key_dim = c.linear_key_head_dim;
  s.value_dim = c.linear_value_head_dim;
  s.conv_taps = c.linear_conv_kernel_dim;
  return s;
}

std::unique_ptr<Model> make() { return std::make_unique<Qwen35>(); }

Status load(Model& base, Loader& loader) {
  auto& model = static_cast<Qwen35&>(base);
  const checkpoint::Config& config = model.config();
  const bool offset = loader.weights().norms_are_offset();
  int cache_layer = 0, state_layer = 0;
  for (std::size_t i = 0; i < config.full_attention.size(); i++) {
    const std::string prefix = fmt::format("layers.{}", i);
    Qwen35::Layer layer;
    if (config.full_attention[i]) {
      LOCKSTEP_ASSIGN(layer.mixer, load_attention(loader, prefix, config, cache_layer++, true, true, offset));
    } else {
      LOCKSTEP_ASSIGN(layer.mixer, load_delta_net(loader, prefix, config, state_layer++, offset));
    }
    LOCKSTEP_ASSIGN(layer.mlp, load_mlp(loader, prefix, config, offset));
    model.layers.push_back(std::move(layer));
  }
  return {};
}

}  // namespace lockstep::models::qwen3_5
