#include "checkpoint/tensor_names.h"

#include "checkpoint/weights.h"

namespace lockstep::checkpoint {

std::string normalised_name(const std::string& tensor_name) {
  for (const char* prefix : {"language_model.model.", "model.language_model.", "model.", "language_model."})
    if (tensor_name.starts_with(prefix)) return tensor_name.substr(std::char_traits<char>::length(prefix));
  return tensor_name;
}

bool is_skipped_tensor(const std::string& normalised) {
  for (const char* prefix : {"visual.", "vision_tower.", "mtp.", "mtp_"})
    if (normalised.starts_with(prefix)) return true;
  return normalised.ends_with(".rotary_emb.inv_freq");
}

const char* foreign_quantisation(const std::string& normalised) {
  constexpr const char* formats[][2] = {
      {".weight_scale_inv", "an FP8 format (weight_scale_inv)"},
      {".weight_scale", "a compressed-tensors or FP8 format (weight_scale)"},
      {".weight_scale_2", "an NVFP4 format (weight_scale_2)"},
      {".weight_global_scale", "an NVFP4 format (weight_global_scale)"},
      {".weight_packed", "a compressed-tensors format (weight_packed)"},
      {".input_scale", "an FP8 format (input_scale)"},
      {".qweight", "an AWQ or GPTQ format (qweight)"},
      {".qzeros", "an AWQ or GPTQ format (qzeros)"},
      {".g_idx", "a GPTQ format (g_idx)"},
      {".absmax", "a bitsandbytes format (absmax)"},
      {".quant_map", "a bitsandbytes format (quant_map)"},
      {"_blocks", "an MXFP4 format (_blocks)"},
  };
  for (const auto& [ending, format] : formats)
    if (normalised.ends_with(ending)) return format;
  return nullptr;
}

}  // namespace lockstep::checkpoint
