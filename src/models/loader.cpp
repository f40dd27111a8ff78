#include "models/loader.h"

#include <fmt/format.h>

namespace lockstep::models {

using kernels::Matrix;
using kernels::Vector;

Result<const Matrix*> Loader::matrix(const std::string& module, std::int64_t out_features, std::int64_t in_features) {
  LOCKSTEP_ASSIGN(Weight weight, weights().linear(module, out_features, in_features));
  const std::size_t source = weight.weight.bytes + weight.scales.bytes + weight.biases.bytes;
  if (!model_.backend_) {  // inspect_only
    LOCKSTEP_TRY(kernels::cpu_supports(weight));
    auto bare = std::make_unique<Matrix>();
    bare->out_features = out_features;
    bare->in_features = in_features;
    bare->read_bytes = source;
    LOCKSTEP_TRY(hold(source));
    model_.matrices_.push_back(std::move(bare));
    return model_.matrices_.back().get();
  }
  LOCKSTEP_TRY(kernels::cpu_supports(weight));
  LOCKSTEP_TRY(hold(model_.backend_->matrix_bytes(weight)));
  LOCKSTEP_ASSIGN(auto matrix, model_.backend_->load_matrix(weight));
  weights().drop(weight);
  source_bytes_ += source;
  if (progress_) progress_(double(source_bytes_) / double(std::max<std::size_t>(1, weights().file_bytes())), module);
  model_.matrices_.push_back(std::move(matrix));
  return model_.matrices_.back().get();
}

Status Loader::hold(std::size_t bytes) {
  LOCKSTEP_ASSIGN(auto reservation, ledger_.reserve(memory::Tag::kWeights, bytes));
  model_.weight_reservations_.push_back(std::move(reservation));
  model_.weight_bytes_ += bytes;
  return {};
}

Result<const Vector*> Loader::add(std::span<const float> values) {
  LOCKSTEP_TRY(hold(values.size_bytes()));
  model_.vectors_.push_back(model_.backend_ ? model_.backend_->load_vector(values) : std::make_unique<Vector>());
  return model_.vectors_.back().get();
}

Result<const Vector*> Loader::vector(const std::string& name, std::int64_t elements) {
  LOCKSTEP_ASSIGN(std::vector<float> values, weights().vector(name, elements));
  return add(values);
}

Result<const Vector*> Loader::norm(const std::string& name, std::int64_t elements, bool offset) {
  LOCKSTEP_ASSIGN(std::vector<float> values, weights().vector(name, elements));
  if (offset)
    for (float& w : values) w = 1.0f + w;
  return add(values);
}

Result<const Vector*> Loader::bias(const std::string& module, std::int64_t elements, bool present) {
  if (!present) return static_cast<const Vector*>(nullptr);
  return vector(module + ".bias", elements);
}

Result<const Vector*> Loader::conv_taps(const std::string& name, std::int64_t channels, std::int64_t taps) {
  LOCKSTEP_ASSIGN(std::vector<float> values, weights().conv(name, channels, taps));
  std::vector<float> by_tap(values.size());
  for (std::int64_t c = 0; c < channels; c++)
    for (std::int64_t t = 0; t < taps; t++) by_tap[std::size_t(t * channels + c)] = values[std::size_t(c * taps + t)];
  return add(by_tap);
}

Result<const Vector*> Loader::neg_exp(const std::string& name, std::int64_t elements) {
  LOCKSTEP_ASSIGN(std::vector<float> values, weights().vector(name, elements));
  LOCKSTEP_TRY(hold(values.size() * sizeof(float)));
  model_.vectors_.push_back(model_.backend_ ? model_.backend_->load_neg_exp(values) : std::make_unique<Vector>());
  return model_.vectors_.back().get();
}

}  // namespace lockstep::models
