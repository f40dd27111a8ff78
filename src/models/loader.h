// Takes a family's weights out of a checkpoint into a backend, one by one: the family names them, the loader checks, reserves, packs and
// drops the source.
#pragma once
#include <string>
#include <vector>

#include "models/model.h"

namespace lockstep::models {

class Loader {
 public:
  Loader(Model& model, memory::Ledger& ledger, const Progress& progress) : model_(model), ledger_(ledger), progress_(progress) {}

  /// A Linear or Embedding of exactly this shape.
  Result<const kernels::Matrix*> matrix(const std::string& module, std::int64_t out_features, std::int64_t in_features);
  /// A 1-D parameter, `name` in full.
  Result<const kernels::Vector*> vector(const std::string& name, std::int64_t elements);
  /// A norm weight; 1 is added where the layout stores offsets (`offset`).
  Result<const kernels::Vector*> norm(const std::string& name, std::int64_t elements, bool offset);
  /// Bias of a Linear, or nullptr where `present` is false.
  Result<const kernels::Vector*> bias(const std::string& module, std::int64_t elements, bool present);
  /// conv1d weight as [taps][channels].
  Result<const kernels::Vector*> conv_taps(const std::string& name, std::int64_t channels, std::int64_t taps);
  /// -exp(A_log).
  Result<const kernels::Vector*> neg_exp(const std::string& name, std::int64_t elements);

  const checkpoint::Weights& weights() const { return *model_.weights_; }

 private:
  Result<const kernels::Vector*> add(std::span<const float> values);
  Status hold(std::size_t bytes);  // reserves them, before they are allocated
  Model& model_;
  memory::Ledger& ledger_;
  const Progress& progress_;
  std::size_t source_bytes_ = 0;
};

/// The parts families share (models.md 3.1, 7.2), under `prefix` such as "layers.3".
Result<kernels::MlpLayer> load_mlp(Loader& loader, const std::string& prefix, const checkpoint::Config& config, bool offset_norms);
Result<kernels::AttentionLayer> load_attention(Loader& loader, const std::string& prefix, const checkpoint::Config& config, int cache_layer,
                                               bool output_gate, bool head_norms, bool offset_norms);
Result<kernels::DeltaNetLayer> load_delta_net(Loader& loader, const std::string& prefix, const checkpoint::Config& config, int state_layer,
                                              bool offset_norms);

}  // namespace lockstep::models
