#include "checkpoint/weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/bfloat16.h"
#include "base/float16.h"
#include "checkpoint/json_file.h"
#include "checkpoint/shards.h"
#include "checkpoint/tensor_names.h"

namespace lockstep::checkpoint {
namespace {

Error tensor_error(ErrorCode code, const TensorView& tensor, const std::string& words) {
  return {code, "tensor " + printable(tensor.name) + " " + words, tensor.name};
}
Error missing(const std::string& name) { return {ErrorCode::kNotFound, "tensor " + printable(name) + " is missing", name}; }

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string s = "[";
  for (std::size_t i = 0; i < shape.size(); i++) s += (i ? ", " : "") + std::to_string(shape[i]);
  return s + "]";
}

const char* dtype_text(DType t) {
  constexpr const char* names[] = {"F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL"};
  return names[int(t)];
}

bool is_float(DType t) { return t == DType::kBF16 || t == DType::kF16 || t == DType::kF32; }

Status check_float(const TensorView& t) {
  if (is_float(t.dtype)) return {};
  return tensor_error(ErrorCode::kUnsupported, t, std::string("is ") + dtype_text(t.dtype) + "; it must be BF16, F16 or F32");
}

Status check_shape(const TensorView& t, const std::vector<std::int64_t>& wanted) {
  if (t.shape == wanted) return {};
  return tensor_error(ErrorCode::kCorruptFile, t, "has shape " + shape_text(t.shape) + "; the config needs " + shape_text(wanted));
}

/// Values of a BF16, F16 or F32 tensor as f32 (exact). Refuses values that are not finite: these few numbers touch every row.
Result<std::vector<float>> widen(const TensorView& t) {
  const std::size_t n = t.bytes / dtype_bytes(t.dtype);
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; i++) {
    if (t.dtype == DType::kF32) {
      std::memcpy(&out[i], t.data + 4 * i, 4);
    } else {
      std::uint16_t h;
      std::memcpy(&h, t.data + 2 * i, 2);
      out[i] = t.dtype == DType::kBF16 ? to_float(h) : half_to_float(h);
    }
    if (!std::isfinite(out[i])) return tensor_error(ErrorCode::kCorruptFile, t, "has a value at " + std::to_string(i) + " that is not finite");
  }
  return out;
}

}  // namespace

Result<Weights> Weights::open(const std::filesystem::path& folder, const Config& config) {
  Weights weights;
  weights.quantization_ = config.quantization;
  LOCKSTEP_ASSIGN(const Shards shards, find_shards(folder));
  std::map<std::string, std::size_t> position;  // file name -> files_
  for (const auto& path : shards.files) {
    LOCKSTEP_ASSIGN(SafetensorsFile file, open_safetensors(path));
    position[path.filename().string()] = weights.files_.size();
    LOCKSTEP_TRY(weights.add_file(std::move(file)));
  }
  for (const auto& [tensor, file] : shards.index)
    if (!weights.files_[position.at(file)].tensors.contains(tensor))
      return Error{ErrorCode::kCorruptFile, "model.safetensors.index.json: tensor " + printable(tensor) + " is not in " + file, tensor};
  if (config.model_type == "qwen3_5") LOCKSTEP_TRY(weights.read_conv_layout());
  return weights;
}

Status Weights::add_file(SafetensorsFile file) {
  for (const auto& [name, view] : file.tensors) {
    const std::string plain = normalised_name(name);
    if (is_skipped_tensor(plain)) {
      skipped_.first++;
      skipped_.second += view.bytes;
      continue;
    }
    if (const char* format = foreign_quantisation(plain))
      return tensor_error(ErrorCode::kUnsupported, view, std::string("belongs to ") + format + ", which cannot be served");
    const auto [at, fresh] = tensors_.emplace(plain, view);
    if (!fresh) return tensor_error(ErrorCode::kCorruptFile, view, "appears twice; the other is " + printable(at->second.name));
  }
  file_bytes_ += file.file->size();
  files_.push_back(std::move(file));
  return {};
}

/// models.md 2.4: the convolution's shape tells raw files from converted ones; all of them must say the same.
Status Weights::read_conv_layout() {
  const TensorView* first = nullptr;
  for (const auto& [name, view] : tensors_) {
    if (!name.ends_with(".conv1d.weight")) continue;
    if (view.shape.size() != 3) return tensor_error(ErrorCode::kCorruptFile, view, "has shape " + shape_text(view.shape) + "; it must have three dimensions");
    const bool offset = view.shape[2] != 1;
    if (first && offset != norms_are_offset_)
      return tensor_error(ErrorCode::kCorruptFile, view, "has shape " + shape_text(view.shape) + " but " + printable(first->name) + " has " +
                                                             shape_text(first->shape) + ": raw and converted layouts are mixed");
    norms_are_offset_ = offset;
    first = &view;
  }
  return {};
}

const TensorView* Weights::find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

const TensorView* Weights::take(const std::string& name) const {
  const TensorView* view = find(name);
  if (view) used_.insert(name);
  return view;
}

bool Weights::has(const std::string& module) const { return find(module + ".weight") || find(module); }

Result<Weight> Weights::linear(const std::string& module, std::int64_t out_features, std::int64_t in_features) const {
  const TensorView* view = take(module + ".weight");
  if (!view) return missing(module + ".weight");
  Weight weight;
  weight.name = module;
  weight.out_features = out_features, weight.in_features = in_features;
  weight.weight = *view;
  const auto entry = quantization_.overrides.find(module);
  const bool has_entry = entry != quantization_.overrides.end(), has_scales = find(module + ".scales") != nullptr;
  if (has_entry && entry->second.plain && has_scales)
    return tensor_error(ErrorCode::kCorruptFile, *find(module + ".scales"), "is there, but config.json's quantization says that the module is plain");
  if (has_entry && !entry->second.plain && !has_scales)
    return tensor_error(ErrorCode::kCorruptFile, *view, "has no .scales, but config.json's quantization says that the module is quantised");
  if (has_scales) return affine(std::move(weight));
  if (view->dtype == DType::kU32) return tensor_error(ErrorCode::kCorruptFile, *view, "holds packed codes (U32) but there is no .scales");
  LOCKSTEP_TRY(check_float(*view));
  LOCKSTEP_TRY(check_shape(*view, {out_features, in_features}));
  taken_[module] = {view->dtype == DType::kBF16 ? "bf16" : view->dtype == DType::kF16 ? "f16" : "f32", view->bytes};
  return weight;
}

/// models.md 6.1 and 6.5: bits and group follow from the shapes and must be what config.json says, where it says anything.
Result<Weight> Weights::affine(Weight weight) const {
  const TensorView& codes = weight.weight;
  const TensorView* scales = take(weight.name + ".scales");
  const TensorView* biases = take(weight.name + ".biases");
  if (codes.dtype != DType::kU32)
    return tensor_error(ErrorCode::kUnsupported, codes, std::string("has .scales but is ") + dtype_text(codes.dtype) + "; packed codes are U32");
  if (!biases) return tensor_error(ErrorCode::kUnsupported, *scales, "has no .biases beside it: only affine quantisation can be served");
  LOCKSTEP_TRY(check_float(*scales));
  LOCKSTEP_TRY(check_float(*biases));
  const std::int64_t out = weight.out_features, in = weight.in_features;
  if (codes.shape.size() != 2 || codes.shape[0] != out)
    return tensor_error(ErrorCode::kCorruptFile, codes, "has shape " + shape_text(codes.shape) + "; the config needs [" + std::to_string(out) + ", " +
                                                            std::to_string(in) + "], packed");
  if (scales->shape.size() != 2 || scales->shape[0] != out || scales->shape[1] < 1 || in % scales->shape[1] != 0)
    return tensor_error(ErrorCode::kCorruptFile, *scales, "has shape " + shape_text(scales->shape) + "; the config needs [" + std::to_string(out) +
                                                              ", " + std::to_string(in) + " / group]");
  LOCKSTEP_TRY(check_shape(*biases, scales->shape));
  const std::int64_t group = in / scales->shape[1], row_bits = codes.shape[1] * 32, bits = row_bits / in;
  if (group != 32 && group != 64 && group != 128)
    return tensor_error(ErrorCode::kUnsupported, *scales, "has groups of " + std::to_string(group) + "; 32, 64 and 128 can be served");
  if (row_bits % in != 0 || bits < 2 || bits > 8 || bits == 7)
    return tensor_error(ErrorCode::kCorruptFile, codes, "has " + std::to_string(row_bits) + " bits for each " + std::to_string(in) +
                                                            " inputs; 2, 3, 4, 5, 6 and 8 for each one can be served");
  weight.affine = true;
  weight.bits = int(bits), weight.group_size = int(group);
  weight.scales = *scales, weight.biases = *biases;
  const auto entry = quantization_.overrides.find(weight.name);
  const bool has_entry = entry != quantization_.overrides.end();
  const int stated_bits = has_entry ? entry->second.bits : quantization_.bits, stated_group = has_entry ? entry->second.group_size : quantization_.group_size;
  if (quantization_.present && (stated_bits != bits || stated_group != group))
    return tensor_error(ErrorCode::kCorruptFile, codes, "has " + std::to_string(bits) + " bits in groups of " + std::to_string(group) +
                                                            " by its shape, but config.json's quantization says " + std::to_string(stated_bits) +
                                                            " in groups of " + std::to_string(stated_group));
  taken_[weight.name] = {std::to_string(bits) + "-bit group " + std::to_string(group), codes.bytes + scales->bytes + biases->bytes};
  return weight;
}

Result<std::vector<float>> Weights::vector(const std::string& name, std::int64_t elements) const {
  const TensorView* view = take(name);
  if (!view) return missing(name);
  LOCKSTEP_TRY(check_float(*view));
  LOCKSTEP_TRY(check_shape(*view, {elements}));
  return widen(*view);
}

Result<std::vector<float>> Weights::conv(const std::string& name, std::int64_t channels, std::int64_t taps) const {
  const TensorView* view = take(name);
  if (!view) return missing(name);
  LOCKSTEP_TRY(check_float(*view));
  const std::vector<std::int64_t> raw{channels, 1, taps}, converted{channels, taps, 1};
  if (view->shape != raw && view->shape != converted)
    return tensor_error(ErrorCode::kCorruptFile, *view, "has shape " + shape_text(view->shape) + "; the config needs " + shape_text(raw) + " or " +
                                                            shape_text(converted));
  return widen(*view);
}

Status Weights::check_all_used() const {
  constexpr std::size_t kNamed = 5;
  std::string names, first;
  std::size_t unknown = 0;
  for (const auto& [name, view] : tensors_) {
    if (used_.contains(name)) continue;
    if (unknown == 0) first = view.name;
    if (unknown++ < kNamed) names += (names.empty() ? "" : ", ") + printable(view.name);
  }
  if (unknown == 0) return {};
  if (unknown > kNamed) names += " and " + std::to_string(unknown - kNamed) + " more";
  return Error{ErrorCode::kUnsupported, "the model has no place for tensor" + std::string(unknown > 1 ? "s " : " ") + names, first};
}

void Weights::drop(const Weight& weight) const {
  for (const TensorView* view : {&weight.weight, &weight.scales, &weight.biases})
    for (const auto& file : files_)
      if (view->data >= file.file->data() && view->data < file.file->data() + file.file->size()) file.file->drop(view->data, view->bytes);
}

std::vector<Weights::FormatCount> Weights::formats() const {
  std::map<std::string, FormatCount> counts;
  for (const auto& [module, format] : taken_) {
    FormatCount& count = counts[format.first];
    count.format = format.first;
    count.modules++;
    count.bytes += format.second;
  }
  std::vector<FormatCount> out;
  for (auto& [format, count] : counts) out.push_back(std::move(count));
  return out;
}

}  // namespace lockstep::checkpoint
