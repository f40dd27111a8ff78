#include "models/llama/llama.h"

#include <fmt/format.h>

namespace lockstep::models::llama {
namespace {

class Llama final : public Model {
 public:
  struct Layer {
    kernels::AttentionLayer attention;
    kernels::MlpLayer mlp;
  };
  std::vector<Layer> layers;

 private:
  void run_layers() override {
    for (const Layer& layer : layers) {
      backend_->attention_mixer(layer.attention);
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
  s.attention_layers = int(c.num_hidden_layers);
  return s;
}

std::unique_ptr<Model> make() { return std::make_unique<Llama>(); }

Status load(Model& base, Loader& loader) {
  auto& model = static_cast<Llama&>(base);
  const checkpoint::Config& config = model.config();
  const bool head_norms = config.model_type == "qwen3";
  for (int i = 0; i < config.num_hidden_layers; i++) {
    const std::string prefix = fmt::format("layers.{}", i);
    Llama::Layer layer;
    LOCKSTEP_ASSIGN(layer.attention, load_attention(loader, prefix, config, i, false, head_norms, false));
    LOCKSTEP_ASSIGN(layer.mlp, load_mlp(loader, prefix, config, false));
    model.layers.push_back(layer);
  }
  return {};
}

}  // namespace lockstep::models::llama
