// Dense Qwen3.5 hybrids: Gated DeltaNet and gated full attention, any size read from the config (models.md 1 to 3).
#pragma once
#include <memory>

#include "models/loader.h"

namespace lockstep::models::qwen3_5 {

kernels::ModelShape shape(const checkpoint::Config& config);
std::unique_ptr<Model> make();
Status load(Model& model, Loader& loader);

}  // namespace lockstep::models::qwen3_5
