#include "checkpoint/config.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "support/fixtures.h"
#include "unit/checkpoint/corpus.h"

namespace lockstep::checkpoint {
namespace {

namespace json = boost::json;
using testing::TempFolder;

constexpr const char* kLlama = R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":512,"hidden_size":128,
  "intermediate_size":320,"num_hidden_layers":2,"num_attention_heads":4,"max_position_embeddings":4096,"rms_norm_eps":1e-5})";
constexpr const char* kQwen3 = R"({"model_type":"qwen3","vocab_size":512,"hidden_size":128,"intermediate_size":320,"num_hidden_layers":2,
  "num_attention_heads":4,"num_key_value_heads":2,"head_dim":64,"max_position_embeddings":4096,"rms_norm_eps":1e-6,"rope_theta":1000000,
  "sliding_window":4096,"use_sliding_window":false,"attention_bias":true})";
constexpr const char* kHybrid = R"({"architectures":["Qwen3_5ForConditionalGeneration"],"model_type":"qwen3_5","vision_config":{"depth":12},
  "tie_word_embeddings":false,"eos_token_id":7,"text_config":{"model_type":"qwen3_5_text","vocab_size":512,"hidden_size":128,"intermediate_size":320,
  "num_hidden_layers":8,"num_attention_heads":6,"num_key_value_heads":2,"head_dim":64,"max_position_embeddings":262144,"rms_norm_eps":1e-06,
  "tie_word_embeddings":true,"eos_token_id":[5,7],"hidden_act":"silu","attn_output_gate":true,"output_gate_type":"swish","attention_bias":false,
  "full_attention_interval":4,"linear_conv_kernel_dim":4,"linear_key_head_dim":64,"linear_num_key_heads":2,"linear_num_value_heads":6,
  "linear_value_head_dim":96,"mlp_only_layers":[],"mamba_ssm_dtype":"float32","mtp_num_hidden_layers":1,
  "rope_parameters":{"mrope_interleaved":true,"mrope_section":[3,3,2],"rope_type":"default","rope_theta":10000000,"partial_rotary_factor":0.25}}})";

/// `base` with the value at a dotted path replaced; an empty value removes the key.
std::string edited(const char* base, const std::string& path, const std::string& value) {
  json::value document = json::parse(base);
  json::object* at = &document.as_object();
  std::size_t begin = 0;
  for (std::size_t dot; (dot = path.find('.', begin)) != std::string::npos; begin = dot + 1) {
    auto& inner = (*at)[path.substr(begin, dot - begin)];
    if (!inner.is_object()) inner = json::object{};
    at = &inner.as_object();
  }
  const std::string place = "\"@\"";  // the value's own bytes go in as text, so that no serialiser changes them
  if (value.empty())
    at->erase(path.substr(begin));
  else
    (*at)[path.substr(begin)] = "@";
  std::string text = json::serialize(document);
  if (!value.empty()) text.replace(text.find(place), place.size(), value);
  testing::keep_seed("config", text);
  return text;
}

TEST(Config, ReadsLlamaWithItsDefaults) {
  const auto c = parse_config(kLlama);
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->model_type, "llama");
  EXPECT_EQ(c->num_key_value_heads, 4);
  EXPECT_EQ(c->head_dim, 32);
  EXPECT_EQ(c->rotary_dim, 32);
  EXPECT_EQ(c->rope_theta, 10000);
  EXPECT_EQ(c->full_attention, (std::vector<bool>{true, true}));
  EXPECT_FALSE(c->tie_word_embeddings.has_value());
  EXPECT_FALSE(c->attention_bias);
  EXPECT_FALSE(c->quantization.present);
  const auto mistral = parse_config(edited(kLlama, "model_type", R"("mistral")"));
  ASSERT_TRUE(mistral.ok());
  EXPECT_EQ(mistral->model_type, "llama");
  EXPECT_EQ(mistral->written_model_type, "mistral");
}

TEST(Config, ReadsQwen3) {
  const auto c = parse_config(kQwen3);
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->model_type, "qwen3");
  EXPECT_EQ(c->head_dim, 64);  // not hidden_size / heads
  EXPECT_EQ(c->rope_theta, 1e6);
  EXPECT_TRUE(c->attention_bias);
}

TEST(Config, ReadsAHybridNestedAndFlat) {
  const auto c = parse_config(kHybrid);
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->model_type, "qwen3_5");
  EXPECT_TRUE(c->has_vision);
  EXPECT_EQ(c->full_attention, (std::vector<bool>{false, false, false, true, false, false, false, true}));
  EXPECT_EQ(c->rotary_dim, 16);
  EXPECT_EQ(c->rope_theta, 1e7);
  EXPECT_EQ(c->rms_norm_eps, 1e-6);
  EXPECT_EQ(c->tie_word_embeddings, true);  // text_config before the root
  EXPECT_EQ(c->eos_token_ids, (std::vector<std::int32_t>{5, 7}));
  EXPECT_EQ(c->linear_value_head_dim, 96);

  const auto flat = parse_config(json::serialize(json::parse(kHybrid).at("text_config")));
  ASSERT_TRUE(flat.ok()) << flat.error().message;
  EXPECT_EQ(flat->model_type, "qwen3_5");
  EXPECT_EQ(flat->full_attention, c->full_attention);
}

TEST(Config, ObeysTheListOfLayerKinds) {
  const std::string l = R"("linear_attention")", f = R"("full_attention")";
  const auto c = parse_config(edited(kHybrid, "text_config.layer_types", "[" + f + "," + l + "," + l + "," + l + "," + f + "," + f + "," + l + "," + l + "]"));
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->full_attention, (std::vector<bool>{true, false, false, false, true, true, false, false}));
}

TEST(Config, ReadsRotaryScalingInEverySpelling) {
  using Type = kernels::RopeScaling::Type;
  const auto scaling = [](const std::string& path, const std::string& value) {
    const auto c = parse_config(edited(kLlama, path, value));
    EXPECT_TRUE(c.ok()) << c.error().message;
    return c.ok() ? c->rope_scaling : kernels::RopeScaling{};
  };
  EXPECT_EQ(scaling("rope_scaling", "null").type, Type::kDefault);
  EXPECT_EQ(scaling("rope_scaling", R"({"type":"linear","factor":2.0})").type, Type::kLinear);
  EXPECT_EQ(scaling("rope_scaling", R"({"rope_type":"linear","factor":4})").factor, 4);
  EXPECT_EQ(scaling("rope_parameters", R"({"rope_type":"default","rope_theta":500000.0})").type, Type::kDefault);
  const auto llama3 =
      scaling("rope_scaling",
              R"({"rope_type":"llama3","factor":32.0,"low_freq_factor":1.5,"high_freq_factor":5,"original_max_position_embeddings":4096})");
  EXPECT_EQ(llama3.type, Type::kLlama3);
  EXPECT_EQ(llama3.factor, 32);
  EXPECT_EQ(llama3.low_freq_factor, 1.5);
  EXPECT_EQ(llama3.high_freq_factor, 5);
  EXPECT_EQ(llama3.original_max_position_embeddings, 4096);
  EXPECT_EQ(parse_config(edited(kLlama, "rope_parameters", R"({"rope_type":"default","rope_theta":70000000})"))->rope_theta, 7e7);
  EXPECT_EQ(parse_config(edited(kLlama, "rope_theta", "70000000.0"))->rope_theta, 7e7);
  EXPECT_TRUE(parse_config(edited(kHybrid, "text_config.rope_parameters.rope_type", R"("mrope")")).ok());
}

TEST(Config, ReadsQuantisationWithNormalisedNames) {
  const auto c = parse_config(edited(kHybrid, "quantization", R"({"group_size":64,"bits":4,"mode":"affine",
      "language_model.model.embed_tokens":{"group_size":32,"bits":8},"model.language_model.layers.0.mlp.up_proj":false,
      "model.layers.1.mlp.up_proj":true,"lm_head":{"group_size":128,"bits":6,"mode":"affine"}})"));
  ASSERT_TRUE(c.ok()) << c.error().message;
  const Quantization& q = c->quantization;
  EXPECT_TRUE(q.present);
  EXPECT_EQ(q.bits, 4);
  EXPECT_EQ(q.group_size, 64);
  ASSERT_EQ(q.overrides.size(), 4u);
  EXPECT_EQ(q.overrides.at("embed_tokens").bits, 8);
  EXPECT_EQ(q.overrides.at("embed_tokens").group_size, 32);
  EXPECT_TRUE(q.overrides.at("layers.0.mlp.up_proj").plain);
  EXPECT_EQ(q.overrides.at("layers.1.mlp.up_proj").bits, 4);
  EXPECT_EQ(q.overrides.at("lm_head").bits, 6);
  for (const char* place : {"quantization_config", "text_config.quantization", "text_config.quantization_config"})
    EXPECT_TRUE(parse_config(edited(kHybrid, place, R"({"group_size":64,"bits":4})"))->quantization.present) << place;
}

struct Refusal {
  const char* base;
  std::string path, value;
  ErrorCode code;
  std::string subject;  // empty: the path
  const char* words;
};

void expect_refused(const Refusal& r) {
  const auto c = parse_config(edited(r.base, r.path, r.value));
  ASSERT_FALSE(c.ok()) << r.path << " = " << r.value;
  EXPECT_EQ(c.error().code, r.code) << r.path << " = " << r.value << ": " << c.error().message;
  EXPECT_EQ(c.error().subject, r.subject.empty() ? r.path : r.subject) << c.error().message;
  EXPECT_NE(c.error().message.find(r.words), std::string::npos) << r.path << " = " << r.value << ": " << c.error().message;
  EXPECT_TRUE(c.error().message.starts_with("config.json: ")) << c.error().message;
}

constexpr ErrorCode kBad = ErrorCode::kCorruptFile, kNo = ErrorCode::kUnsupported;

TEST(Config, VocabulariesAreBelowTheBoundOfTheIntegerMasses) {  // sampling/masses.h adds less than 2^23 of them
  EXPECT_TRUE(parse_config(edited(kHybrid, "text_config.vocab_size", "8388607")).ok());
  expect_refused({kHybrid, "text_config.vocab_size", "8388608", kBad, "", "it must be a whole number from 1 to 8388607"});
}

TEST(Config, RefusesAbsurdNumbers) {
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
                          "max_position_embeddings", "linear_conv_kernel_dim", "linear_key_head_dim", "linear_num_key_heads", "linear_num_value_heads",
                          "linear_value_head_dim", "full_attention_interval"}) {
    const std::string path = std::string("text_config.") + key;
    for (const char* value : {"0", "-1", "-9223372036854775808", "1.5", "8.0", "1e308", "1e999", "\"8\"", "true", "[8]", "{}", "9223372036854775807",
                              "9223372036854775808", "18446744073709551615", "18446744073709551616", "4294967296"})
      expect_refused({kHybrid, path, value, kBad, "", "it must be a whole number from 1 to"});
    expect_refused({kHybrid, path, "", kBad, "", "is missing"});
    expect_refused({kHybrid, path, "null", kBad, "", "is missing"});
  }
  for (const char* value : {"0", "-1e-6", "1", "1e308", "1e-400", "\"1e-6\"", "[]", "1e999", "-1e999", "true"})
    expect_refused({kHybrid, "text_config.rms_norm_eps", value, kBad, "", "it must be a number from"});
  for (const char* value : {"0", "-1", "0.5", "1e308", "1e999", "\"1e6\"", "{}"})
    expect_refused({kLlama, "rope_theta", value, kBad, "", "it must be a number from"});
  for (const char* text : {"{\"vocab_size\":NaN}", "{\"vocab_size\":Infinity}", "{\"vocab_size\":-Infinity}", "{\"vocab_size\":0x10}", "{\"vocab_size\":01}"}) {
    const auto c = parse_config(text);
    ASSERT_FALSE(c.ok());
    EXPECT_NE(c.error().message.find("config.json: is not valid JSON"), std::string::npos) << c.error().message;
  }
}

TEST(Config, RefusesShapesThatDoNotFit) {
  const std::vector<Refusal> cases = {
      {kLlama, "num_attention_heads", "3", kBad, "", "does not divide hidden_size 128"},
      {kLlama, "num_key_value_heads", "3", kBad, "", "does not divide num_attention_heads 4"},
      {kLlama, "num_key_value_heads", "8", kBad, "", "does not divide"},
      {kLlama, "head_dim", "17", kNo, "", "multiples of 16 up to 512"},
      {kLlama, "head_dim", "513", kBad, "", "from 1 to 512"},
      {kHybrid, "text_config.linear_num_key_heads", "4", kBad, "", "does not divide linear_num_value_heads 6"},
      {kHybrid, "text_config.linear_key_head_dim", "48", kNo, "", "multiples of 32 up to 256"},
      {kHybrid, "text_config.linear_value_head_dim", "288", kNo, "", "multiples of 32 up to 256"},
      {kHybrid, "text_config.linear_conv_kernel_dim", "3", kNo, "", "only 4"},
      {kHybrid, "text_config.layer_types", "[]", kBad, "", "a list of 8"},
      {kHybrid, "text_config.layer_types", "7", kBad, "", "a list of 8"},
      {kHybrid, "text_config.layer_types", R"([1,1,1,1,1,1,1,1])", kNo, "text_config.layer_types[0]", "is 1"},
      {kHybrid, "text_config.full_attention_interval", "1", kNo, "text_config.layer_types", "no linear attention layer"},
      {kHybrid, "text_config.rope_parameters.partial_rotary_factor", "0.26", kNo, "text_config.partial_rotary_factor", "even whole number"},
      {kHybrid, "text_config.rope_parameters.partial_rotary_factor", "0", kNo, "text_config.partial_rotary_factor", "even whole number"},
      {kHybrid, "text_config.rope_parameters.partial_rotary_factor", "1.25", kBad, "", "from 0 to 1"},
      {kHybrid, "text_config.rope_parameters.partial_rotary_factor", "", kBad, "text_config.partial_rotary_factor", "is missing"},
      {kHybrid, "text_config.rope_parameters.rope_theta", "", kBad, "text_config.rope_theta", "is missing"},
      {kHybrid, "text_config.rope_theta", "10000", kBad, "text_config.rope_parameters.rope_theta", "differs from text_config.rope_theta"},
      {kHybrid, "text_config", "[]", kBad, "", "must be an object"},
      {kHybrid, "text_config.eos_token_id", "-1", kBad, "", "must be a token id"},
      {kHybrid, "text_config.eos_token_id", "[1,\"2\"]", kBad, "", "must be a token id"},
      {kHybrid, "eos_token_id", "1e9", kBad, "", "must be a token id"},
      {kHybrid, "text_config.tie_word_embeddings", "\"yes\"", kBad, "", "true or false"},
  };
  for (const auto& r : cases) expect_refused(r);
}

TEST(Config, RefusesByNameWhatNoKernelDoes) {
  const std::vector<Refusal> cases = {
      {kLlama, "model_type", "\"qwen3_5_moe\"", kNo, "", "\"qwen3_5_moe\""},
      {kLlama, "model_type", "\"qwen3_next\"", kNo, "", "\"qwen3_next\""},
      {kLlama, "model_type", "\"nanbeige\"", kNo, "", "\"nanbeige\""},
      {kLlama, "model_type", "\"\"", kNo, "", "can be served"},
      {kLlama, "model_type", "", kBad, "", "is missing"},
      {kHybrid, "text_config.model_type", "\"qwen3_5_moe_text\"", kNo, "", "qwen3_5_moe_text"},
      {kHybrid, "text_config.model_type", "\"llama\"", kNo, "", "inside a qwen3_5"},
      {kHybrid, "model_type", "\"llava\"", kNo, "", "llava"},
      {kLlama, "architectures", R"(["DFlashDraftModel"])", kNo, "", "DFlashDraftModel: this folder holds a drafter"},
      {kLlama, "architectures", R"(["DFlash2DraftModel"])", kNo, "", "drafter"},
      {kLlama, "hidden_act", "\"gelu\"", kNo, "", "\"gelu\""},
      {kHybrid, "text_config.output_gate_type", "\"sigmoid\"", kNo, "", "\"sigmoid\""},
      {kHybrid, "text_config.attn_output_gate", "false", kNo, "", "is false"},
      {kHybrid, "text_config.attention_bias", "true", kNo, "", "is true"},
      {kHybrid, "text_config.num_experts", "64", kNo, "", "mixtures of experts"},
      {kLlama, "num_local_experts", "8", kNo, "", "mixtures of experts"},
      {kLlama, "sliding_window", "4096", kNo, "", "sliding window"},
      {kQwen3, "use_sliding_window", "true", kNo, "", "sliding window"},
      {kQwen3, "mlp_bias", "true", kNo, "", "qwen3 does not have"},
      {kLlama, "layer_types", R"(["full_attention","sliding_attention"])", kNo, "layer_types[1]", "sliding_attention"},
      {kLlama, "layer_types", R"(["full_attention","linear_attention"])", kNo, "layer_types[1]", "linear_attention"},
      {kLlama, "is_causal", "false", kNo, "", "is false"},
      {kLlama, "rope_traditional", "true", kNo, "", "is true"},
      {kHybrid, "modeling_overrides", R"({"full_attention":"block_bidirectional","linear_attention":"causal"})", kNo,
       "modeling_overrides.full_attention", "block_bidirectional"},
      {kLlama, "rope_scaling", R"({"type":"dynamic","factor":2})", kNo, "rope_scaling.type", "\"dynamic\""},
      {kLlama, "rope_scaling", R"({"rope_type":"yarn","factor":4})", kNo, "rope_scaling.rope_type", "\"yarn\""},
      {kLlama, "rope_scaling", R"({"rope_type":"longrope","short_factor":[1]})", kNo, "rope_scaling.rope_type", "\"longrope\""},
      {kLlama, "rope_scaling", R"({"type":"mrope"})", kNo, "rope_scaling.type", "\"mrope\""},
      {kHybrid, "text_config.rope_parameters.rope_type", "\"yarn\"", kNo, "", "\"yarn\""},
      {kHybrid, "text_config.rope_parameters.full_attention", R"({"rope_type":"default"})", kNo, "", "by layer type"},
      {kHybrid, "text_config.rope_scaling", R"({"type":"linear","factor":2})", kBad, "", "contradicts rope_parameters"},
      {kLlama, "rope_scaling", R"({"type":"linear"})", kBad, "rope_scaling.factor", "is missing"},
      {kLlama, "rope_scaling", R"({"type":"linear","factor":0.5})", kBad, "rope_scaling.factor", "from 1 to"},
      {kLlama, "rope_scaling", R"({"type":"linear","rope_type":"llama3","factor":2})", kBad, "rope_scaling.type", "but rope_type is"},
      {kLlama, "rope_scaling", R"({"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4})", kBad,
       "rope_scaling.low_freq_factor", "not below"},
      {kLlama, "rope_scaling", R"("linear")", kBad, "", "must be an object"},
      {kLlama, "partial_rotary_factor", "0.5", kNo, "", "is not 1"},
  };
  for (const auto& r : cases) expect_refused(r);
}

TEST(Config, RefusesOtherQuantisation) {
  const std::vector<Refusal> cases = {
      {kLlama, "quantization_config", R"({"quant_method":"awq","bits":4,"group_size":128})", kNo, "quantization_config.quant_method", "\"awq\""},
      {kLlama, "quantization_config", R"({"quant_method":"gptq"})", kNo, "quantization_config.quant_method", "\"gptq\""},
      {kLlama, "quantization_config", R"({"quant_method":"fp8","weight_block_size":[128,128]})", kNo, "quantization_config.quant_method", "\"fp8\""},
      {kLlama, "quantization_config", R"({"quant_method":"compressed-tensors"})", kNo, "quantization_config.quant_method", "compressed-tensors"},
      {kLlama, "quantization", R"({"bits":4,"group_size":32,"mode":"mxfp4"})", kNo, "quantization.mode", "\"mxfp4\""},
      {kLlama, "quantization", R"({"bits":4,"group_size":16,"mode":"nvfp4"})", kNo, "quantization.mode", "\"nvfp4\""},
      {kLlama, "quantization", R"({"bits":4,"group_size":64,"lm_head":{"bits":8,"group_size":32,"mode":"mxfp8"}})", kNo, "quantization.lm_head.mode", "mxfp8"},
      {kLlama, "quantization", R"({"bits":7,"group_size":64})", kNo, "quantization.bits", "is 7"},
      {kLlama, "quantization", R"({"bits":16,"group_size":64})", kNo, "quantization.bits", "is 16"},
      {kLlama, "quantization", R"({"bits":4,"group_size":16})", kNo, "quantization.group_size", "is 16"},
      {kLlama, "quantization", R"({"group_size":64})", kBad, "quantization.bits", "is missing"},
      {kLlama, "quantization", R"({"bits":-4,"group_size":64})", kBad, "quantization.bits", "whole number"},
      {kLlama, "quantization", R"({"bits":4,"group_size":64,"rotation":"hadamard"})", kNo, "quantization.rotation", "no setting"},
      {kLlama, "quantization", R"({"bits":4,"group_size":64,"lm_head":{"bits":3.5,"group_size":64}})", kBad, "quantization.lm_head.bits", "whole number"},
      {kLlama, "quantization", R"({"bits":4,"group_size":64,"model.norm":false,"norm":true})", kBad, "quantization.norm", "contradicts"},
      {kLlama, "quantization", "4", kBad, "", "must be an object"},
  };
  for (const auto& r : cases) expect_refused(r);
}

TEST(Config, RefusesBadJson) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "not valid JSON"},
      {"[]", "not a JSON object"},
      {"7", "not a JSON object"},
      {"{} {}", "text after its JSON value"},
      {"{\"a\":\"\xff\"}", "not valid JSON"},
      {std::string("{\"a\":") + std::string(100'000, '[') + std::string(100'000, ']') + "}", "not valid JSON"},
      {std::string(2'000'000, '{'), "not valid JSON"},
      {R"({"hidden_size":1,"hidden_size":2})", "the key \"hidden_size\" appears twice"},
      {R"({"a":{"b":[{"c":1,"\u0063":2}]}})", "the key \"c\" appears twice"},
      {std::string("{\"\0\":1}", 7), "not valid JSON"},
  };
  for (const auto& [text, words] : cases) {
    const auto c = parse_config(text);
    ASSERT_FALSE(c.ok());
    EXPECT_NE(c.error().message.find(words), std::string::npos) << text.substr(0, 60) << ": " << c.error().message;
    EXPECT_LT(c.error().message.size(), 400u);
  }
  EXPECT_TRUE(parse_config(edited(kLlama, "a.c", R"([{"c":1},{"c":2}])")).ok());  // the same key in two objects is no duplicate
}

TEST(Config, RefusesBadFiles) {
  const TempFolder folder;
  auto c = read_config(folder.path());
  ASSERT_FALSE(c.ok());
  EXPECT_EQ(c.error().code, ErrorCode::kNotFound);
  EXPECT_NE(c.error().message.find("config.json"), std::string::npos);
  std::filesystem::create_directory(folder.path() / "config.json");
  c = read_config(folder.path());
  ASSERT_FALSE(c.ok());
  EXPECT_NE(c.error().message.find("not a regular file"), std::string::npos) << c.error().message;
  std::filesystem::remove(folder.path() / "config.json");
  folder.write("config.json", std::string((4 << 20) + 1, ' '));
  c = read_config(folder.path());
  ASSERT_FALSE(c.ok());
  EXPECT_NE(c.error().message.find("the limit is 4194304"), std::string::npos) << c.error().message;
}

TEST(GenerationConfig, ReadsDefaultsAndRefusesNonsense) {
  const TempFolder folder;
  auto g = read_generation_config(folder.path());
  ASSERT_TRUE(g.ok());  // no file, no defaults
  EXPECT_FALSE(g->temperature.has_value());
  folder.write("generation_config.json", R"({"do_sample":true,"temperature":0.7,"top_k":20,"top_p":0.95,"min_p":null,"eos_token_id":[8002,8000,8002]})");
  g = read_generation_config(folder.path());
  ASSERT_TRUE(g.ok()) << g.error().message;
  EXPECT_EQ(g->do_sample, true);
  EXPECT_EQ(g->temperature, 0.7);
  EXPECT_EQ(g->top_p, 0.95);
  EXPECT_EQ(g->top_k, 20);
  EXPECT_FALSE(g->min_p.has_value());
  EXPECT_EQ(g->eos_token_ids, (std::vector<std::int32_t>{8002, 8000}));
  folder.write("generation_config.json", R"({"top_k":-1,"eos_token_id":3})");
  EXPECT_EQ(read_generation_config(folder.path())->top_k, 0);
  const std::pair<const char*, const char*> bad[] = {{R"({"temperature":-1})", "temperature"}, {R"({"temperature":1e999})", "temperature"},
                                                     {R"({"top_p":1.5})", "top_p"},            {R"({"min_p":"a"})", "min_p"},
                                                     {R"({"top_k":1.5})", "top_k"},            {R"({"do_sample":1})", "do_sample"},
                                                     {R"({"eos_token_id":-3})", "eos_token_id"}};
  for (const auto& [text, key] : bad) {
    folder.write("generation_config.json", text);
    g = read_generation_config(folder.path());
    ASSERT_FALSE(g.ok()) << text;
    EXPECT_EQ(g.error().subject, key) << g.error().message;
    EXPECT_TRUE(g.error().message.starts_with("generation_config.json: ")) << g.error().message;
  }
  folder.write("generation_config.json", "{");
  EXPECT_FALSE(read_generation_config(folder.path()).ok());
}

}  // namespace
}  // namespace lockstep::checkpoint
