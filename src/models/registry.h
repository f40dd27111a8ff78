// Families by model_type: one row each.
#pragma once
#include <memory>
#include <string_view>

#include "kernels/backend.h"
#include "models/loader.h"

namespace lockstep::models {

struct Family {
  std::string_view model_type;
  kernels::ModelShape (*shape)(const checkpoint::Config& config);
  std::unique_ptr<Model> (*make)();
  Status (*load)(Model& model, Loader& loader);  // layers between embedding and head
  bool offset_norms;                             // norms may be stored as w of (1 + w), as the checkpoint's layout says
};

/// kUnsupported naming model_type where there is none.
Result<const Family*> find_family(std::string_view model_type);
/// Shape of a config with `context` positions, checked against what the CPU kernels do.
Result<kernels::ModelShape> shape_of(const checkpoint::Config& config, std::int64_t context);

}  // namespace lockstep::models
