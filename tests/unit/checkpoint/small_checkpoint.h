// Checkpoints of one or two layers put together tensor by tensor, so that a test can spoil one of them.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "checkpoint/config.h"
#include "unit/checkpoint/safetensors_bytes.h"

namespace lockstep::testing {

struct SmallTensor {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::size_t bytes() const {
    std::size_t n = dtype == "U32" || dtype == "F32" || dtype == "I32" ? 4 : dtype == "U8" ? 1 : 2;
    for (auto d : shape) n *= std::size_t(d);
    return n;
  }
};

using SmallTensors = std::vector<SmallTensor>;

/// A file of these tensors in this order; the data's bytes count 0 .. 63, so every value is finite.
inline std::string small_file(const SmallTensors& tensors) {
  std::string header = "{";
  std::size_t offset = 0;
  for (const auto& t : tensors) {
    if (header.size() > 1) header += ',';
    header.append("\"").append(t.name).append("\":{\"dtype\":\"").append(t.dtype).append("\",\"shape\":[");
    for (std::size_t i = 0; i < t.shape.size(); i++) header.append(i ? "," : "").append(std::to_string(t.shape[i]));
    header.append("],\"data_offsets\":[").append(std::to_string(offset)).append(",");
    offset += t.bytes();
    header.append(std::to_string(offset)).append("]}");
  }
  return safetensors_bytes(header + "}", offset);
}

inline SmallTensor& named(SmallTensors& tensors, const std::string& name) {
  return *std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == name; });
}
inline void remove_tensor(SmallTensors& tensors, const std::string& name) {
  std::erase_if(tensors, [&](const auto& t) { return t.name == name; });
}

/// Llama: one layer, hidden 64, 2 heads of 32, inner 128, vocabulary 96, tied.
inline SmallTensors small_llama() {
  SmallTensors t = {{"model.embed_tokens.weight", "BF16", {96, 64}}, {"model.norm.weight", "BF16", {64}}};
  const std::string at = "model.layers.0.";
  t.push_back({at + "input_layernorm.weight", "BF16", {64}});
  t.push_back({at + "post_attention_layernorm.weight", "BF16", {64}});
  for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) t.push_back({at + "self_attn." + name + ".weight", "BF16", {64, 64}});
  t.push_back({at + "mlp.gate_proj.weight", "BF16", {128, 64}});
  t.push_back({at + "mlp.up_proj.weight", "BF16", {128, 64}});
  t.push_back({at + "mlp.down_proj.weight", "BF16", {64, 128}});
  return t;
}
inline checkpoint::Config small_llama_config() {
  return checkpoint::parse_config(R"({"model_type":"llama","vocab_size":96,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":1,
      "num_attention_heads":2,"max_position_embeddings":128,"rms_norm_eps":1e-5})").value();
}

/// Replaces module.weight by codes, scales and biases of the same module.
inline void quantise(SmallTensors& tensors, const std::string& module, int bits, int group) {
  SmallTensor& t = named(tensors, module + ".weight");
  const std::int64_t out = t.shape[0], in = t.shape[1];
  t.dtype = "U32";
  t.shape = {out, in * bits / 32};
  tensors.push_back({module + ".scales", "BF16", {out, in / group}});
  tensors.push_back({module + ".biases", "BF16", {out, in / group}});
}

/// Qwen3.5: one linear and one full layer, hidden 64, heads of 32 (2 of 1 each; linear 1 key and 2 value heads), raw layout.
inline SmallTensors small_hybrid() {
  SmallTensors t = {{"model.language_model.embed_tokens.weight", "BF16", {96, 64}}, {"model.language_model.norm.weight", "BF16", {64}}};
  for (int i = 0; i < 2; i++) {
    const std::string at = "model.language_model.layers." + std::to_string(i) + ".";
    t.push_back({at + "input_layernorm.weight", "BF16", {64}});
    t.push_back({at + "post_attention_layernorm.weight", "BF16", {64}});
    t.push_back({at + "mlp.gate_proj.weight", "BF16", {128, 64}});
    t.push_back({at + "mlp.up_proj.weight", "BF16", {128, 64}});
    t.push_back({at + "mlp.down_proj.weight", "BF16", {64, 128}});
  }
  const std::string linear = "model.language_model.layers.0.linear_attn.", full = "model.language_model.layers.1.self_attn.";
  t.push_back({linear + "in_proj_qkv.weight", "BF16", {128, 64}});
  t.push_back({linear + "in_proj_z.weight", "BF16", {64, 64}});
  t.push_back({linear + "in_proj_b.weight", "BF16", {2, 64}});
  t.push_back({linear + "in_proj_a.weight", "BF16", {2, 64}});
  t.push_back({linear + "conv1d.weight", "BF16", {128, 1, 4}});
  t.push_back({linear + "A_log", "F32", {2}});
  t.push_back({linear + "dt_bias", "BF16", {2}});
  t.push_back({linear + "norm.weight", "F32", {32}});
  t.push_back({linear + "out_proj.weight", "BF16", {64, 64}});
  t.push_back({full + "q_proj.weight", "BF16", {128, 64}});
  t.push_back({full + "k_proj.weight", "BF16", {32, 64}});
  t.push_back({full + "v_proj.weight", "BF16", {32, 64}});
  t.push_back({full + "o_proj.weight", "BF16", {64, 64}});
  t.push_back({full + "q_norm.weight", "BF16", {32}});
  t.push_back({full + "k_norm.weight", "BF16", {32}});
  return t;
}
inline checkpoint::Config small_hybrid_config() {
  return checkpoint::parse_config(R"({"model_type":"qwen3_5_text","vocab_size":96,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,
      "num_attention_heads":2,"num_key_value_heads":1,"head_dim":32,"max_position_embeddings":128,"rms_norm_eps":1e-6,"full_attention_interval":2,
      "linear_conv_kernel_dim":4,"linear_num_key_heads":1,"linear_num_value_heads":2,"linear_key_head_dim":32,"linear_value_head_dim":32,
      "rope_theta":10000000,"partial_rotary_factor":0.25})").value();
}

}  // namespace lockstep::testing
