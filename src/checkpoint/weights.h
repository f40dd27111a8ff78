// Tensor names over shards -> weights: one normalised name for every layout (models.md 2).
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/tensor.h"
#include "checkpoint/config.h"
#include "checkpoint/safetensors.h"

namespace lockstep::checkpoint {

/// Normalised name: the prefixes `language_model.model.`, `model.language_model.`, `model.` and `language_model.` removed, so that every layout has
/// "embed_tokens", "norm", "layers.3.self_attn.q_proj", "lm_head". Module names have no ".weight".
std::string normalised_name(const std::string& tensor_name);

/// Views into the mapped files. Taking tensors is for one thread at a time.
class Weights {
 public:
  /// Opens the shards (index file, else all *.safetensors), checks names: vision and MTP tensors are skipped, duplicates refused, file names
  /// that leave the folder refused.
  static Result<Weights> open(const std::filesystem::path& folder, const Config& config);

  bool has(const std::string& module) const;  // module has a ".weight" (or is a bare parameter such as A_log)
  /// Weight of a Linear or Embedding with exactly this shape; affine where the config's block or its scales say so, bits and group derived from shapes
  /// and verified against the block. Errors name the tensor, the shape found and the shape wanted.
  Result<Weight> linear(const std::string& module, std::int64_t out_features, std::int64_t in_features) const;
  /// A 1-D parameter (norm weight, bias, A_log, dt_bias; `name` in full, such as "layers.0.input_layernorm.weight"), widened to f32.
  Result<std::vector<float>> vector(const std::string& name, std::int64_t elements) const;
  /// conv1d.weight [channels, 1, taps] or [channels, taps, 1], widened to f32 in file order [channels][taps].
  Result<std::vector<float>> conv(const std::string& name, std::int64_t channels, std::int64_t taps) const;
  /// True for raw Hugging Face Qwen3.5 files, whose norms are stored as w of (1 + w): conv1d's last dimension is the kernel (models.md 2.4). False
  /// where there is no conv.
  bool norms_are_offset() const { return norms_are_offset_; }

  /// Call when a family has taken every tensor it knows: an unknown tensor left over is refused by name.
  Status check_all_used() const;
  /// Gives the file pages of a weight's tensors back after it was repacked.
  void drop(const Weight& weight) const;
  std::size_t file_bytes() const { return file_bytes_; }
  /// (tensor count, bytes) of skipped vision and MTP tensors, for `info`.
  std::pair<std::size_t, std::size_t> skipped() const { return skipped_; }
  /// Storage of the modules that linear() has returned so far, by format: "bf16", "f16", "f32", "4-bit group 64". For `info`.
  struct FormatCount {
    std::string format;
    std::size_t modules = 0, bytes = 0;
  };
  std::vector<FormatCount> formats() const;

 private:
  Status add_file(SafetensorsFile file);
  Status read_conv_layout();
  const TensorView* find(const std::string& name) const;
  const TensorView* take(const std::string& name) const;  // find, and marks it used
  Result<Weight> affine(Weight weight) const;

  std::vector<SafetensorsFile> files_;
  std::map<std::string, TensorView> tensors_;  // normalised full names; a view's own name is the one in the file
  mutable std::set<std::string> used_;
  mutable std::map<std::string, std::pair<std::string, std::size_t>> taken_;  // module -> format, bytes
  Quantization quantization_;
  bool norms_are_offset_ = false;
  std::size_t file_bytes_ = 0;
  std::pair<std::size_t, std::size_t> skipped_{};
};

}  // namespace lockstep::checkpoint
