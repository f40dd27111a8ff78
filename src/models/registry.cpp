#include "models/registry.h"

#include <fmt/format.h>

#include "models/llama/llama.h"
#include "models/qwen3_5/qwen3_5.h"

namespace lockstep::models {
namespace {
constexpr Family kFamilies[] = {
    {"qwen3_5", qwen3_5::shape, qwen3_5::make, qwen3_5::load, true},
    {"llama", llama::shape, llama::make, llama::load, false},
    {"qwen3", llama::shape, llama::make, llama::load, false},
};
}

Result<const Family*> find_family(std::string_view model_type) {
  for (const Family& family : kFamilies)
    if (family.model_type == model_type) return &family;
  return Error{ErrorCode::kUnsupported, fmt::format("model_type \"{}\" is not one of qwen3_5, llama, qwen3", model_type), "model_type"};
}

Result<kernels::ModelShape> shape_of(const checkpoint::Config& config, std::int64_t context) {
  LOCKSTEP_ASSIGN(const Family* family, find_family(config.model_type));
  kernels::ModelShape shape = family->shape(config);
  shape.context = context;
  LOCKSTEP_TRY(kernels::cpu_supports(shape));
  return shape;
}

}  // namespace lockstep::models
