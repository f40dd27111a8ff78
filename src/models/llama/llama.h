// Llama and the dense Qwen3 body, which is Llama with head norms (models.md 7.1, 7.2, 7.6).
#pragma once
#include <memory>

#include "models/loader.h"

namespace lockstep::models::llama {

kernels::ModelShape shape(const checkpoint::Config& config);
std::unique_ptr<Model> make();
Status load(Model& model, Loader& loader);

}  // namespace lockstep::models::llama
