#include "checkpoint/weights.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/bfloat16.h"
#include "support/family_tensors.h"
#include "support/fixtures.h"
#include "unit/checkpoint/small_checkpoint.h"

namespace lockstep::checkpoint {
namespace {

using namespace lockstep::testing;

/// Opens a folder of one file and takes every tensor.
Status open_all(const SmallTensors& tensors, const Config& config) {
  const TempFolder folder;
  folder.write("model.safetensors", small_file(tensors));
  LOCKSTEP_ASSIGN(const Weights weights, Weights::open(folder.path(), config));
  return take_all_tensors(config, weights);
}

void expect_refused(const Status& status, ErrorCode code, const std::string& subject, const char* words) {
  ASSERT_FALSE(status.ok()) << subject << ": " << words;
  EXPECT_EQ(status.error().code, code) << status.error().message;
  EXPECT_EQ(status.error().subject, subject) << status.error().message;
  EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message;
}

TEST(TensorNames, EveryPrefixIsRemoved) {
  for (const char* prefix : {"language_model.model.", "model.language_model.", "model.", "language_model.", ""})
    EXPECT_EQ(normalised_name(std::string(prefix) + "layers.3.self_attn.q_proj.weight"), "layers.3.self_attn.q_proj.weight") << prefix;
  EXPECT_EQ(normalised_name("language_model.lm_head.scales"), "lm_head.scales");
  EXPECT_EQ(normalised_name("lm_head.weight"), "lm_head.weight");
}

TEST(Weights, OpensEveryPrefix) {
  for (const char* prefix : {"language_model.model.", "model.language_model.", "model.", "language_model.", ""}) {
    SmallTensors tensors = small_llama();
    for (auto& t : tensors) t.name.replace(0, 6, prefix);
    const auto status = open_all(tensors, small_llama_config());
    EXPECT_TRUE(status.ok()) << prefix << ": " << status.error().message;
  }
  const auto hybrid = open_all(small_hybrid(), small_hybrid_config());
  EXPECT_TRUE(hybrid.ok()) << hybrid.error().message;
}

TEST(Weights, ReadsEveryFloatTypeAtAnyByte) {
  // A one-byte tensor in front puts every other value at an odd address.
  const TempFolder folder;
  std::string data;
  const auto put = [&](const void* bytes, std::size_t n) { data.append(static_cast<const char*>(bytes), n); };
  const std::uint8_t pad = 1;
  const std::uint16_t bf16_values[] = {0x3f80, 0xc040, 0x0080, 0x8000}, f16_values[] = {0x3c00, 0xc200, 0x0001, 0x7bff};
  const float f32_values[] = {1.0f, -3.0f, 0x1p-149f, 3.25f};
  put(&pad, 1), put(bf16_values, 8), put(f16_values, 8), put(f32_values, 16);
  const std::string header = R"({"mtp.pad":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"BF16","shape":[4],"data_offsets":[1,9]},)"
                             R"("h":{"dtype":"F16","shape":[4],"data_offsets":[9,17]},"f":{"dtype":"F32","shape":[4],"data_offsets":[17,33]}})";
  folder.write("model.safetensors", safetensors_bytes(header, 0) + data);
  const auto weights = Weights::open(folder.path(), small_llama_config());
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ(weights->vector("b", 4).value(), (std::vector<float>{1, -3, 0x1p-126f, -0.0f}));
  EXPECT_EQ(weights->vector("h", 4).value(), (std::vector<float>{1, -3, 0x1p-24f, 65504}));
  EXPECT_EQ(weights->vector("f", 4).value(), (std::vector<float>{1, -3, 0x1p-149f, 3.25f}));
  EXPECT_EQ(weights->skipped(), (std::pair<std::size_t, std::size_t>{1, 1}));
}

TEST(Weights, SkipsVisionAndMtpAndNothingElse) {
  SmallTensors tensors = small_llama();
  for (const char* name : {"model.visual.blocks.0.attn.qkv.weight", "visual.merger.weight", "vision_tower.patch_embed.proj.weight", "mtp.fc.weight",
                           "model.language_model.visual.pos_embed.weight", "language_model.mtp.norm.weight", "model.mtp.norm2.weight", "mtp_head.weight",
                           "model.layers.0.self_attn.rotary_emb.inv_freq"})
    tensors.push_back({name, "BF16", {3}});
  const TempFolder folder;
  folder.write("model.safetensors", small_file(tensors));
  const auto weights = Weights::open(folder.path(), small_llama_config());
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ(weights->skipped().first, 9u);
  EXPECT_EQ(weights->skipped().second, 54u);
  EXPECT_EQ(weights->file_bytes(), std::filesystem::file_size(folder.path() / "model.safetensors"));
  EXPECT_TRUE(take_all_tensors(small_llama_config(), *weights).ok());

  tensors.push_back({"model.layers.0.self_attn.sinks", "BF16", {2}});
  expect_refused(open_all(tensors, small_llama_config()), ErrorCode::kUnsupported, "model.layers.0.self_attn.sinks",
                 "no place for tensor model.layers.0.self_attn.sinks");
  for (int i = 0; i < 6; i++) tensors.push_back({"extra." + std::to_string(i), "BF16", {2}});
  expect_refused(open_all(tensors, small_llama_config()), ErrorCode::kUnsupported, "extra.0", "extra.4 and 2 more");
  // A bias that the config does not mention, and a layer too many.
  tensors = small_llama();
  tensors.push_back({"model.layers.0.self_attn.q_proj.bias", "BF16", {64}});
  expect_refused(open_all(tensors, small_llama_config()), ErrorCode::kUnsupported, "model.layers.0.self_attn.q_proj.bias", "no place");
  tensors.back() = {"model.layers.1.input_layernorm.weight", "BF16", {64}};
  expect_refused(open_all(tensors, small_llama_config()), ErrorCode::kUnsupported, "model.layers.1.input_layernorm.weight", "no place");
}

TEST(Weights, RefusesMissingTensorsAndWrongShapes) {
  SmallTensors tensors = small_llama();
  remove_tensor(tensors, "model.layers.0.mlp.up_proj.weight");
  expect_refused(open_all(tensors, small_llama_config()), ErrorCode::kNotFound, "layers.0.mlp.up_proj.weight", "is missing");
  tensors = small_llama();
  remove_tensor(tensors, "model.norm.weight");
  expect_refused(open_all(tensors, small_llama_config()), ErrorCode::kNotFound, "norm.weight", "is missing");
  const std::pair<const char*, std::vector<std::int64_t>> shapes[] = {{"model.layers.0.self_attn.q_proj.weight", {64, 65}},
                                                                      {"model.layers.0.self_attn.q_proj.weight", {4096}},
                                                                      {"model.layers.0.mlp.gate_proj.weight", {64, 128}},
                                                                      {"model.embed_tokens.weight", {95, 64}},
                                                                      {"model.norm.weight", {64, 1}},
                                                                      {"model.norm.weight", {}}};
  for (const auto& [name, shape] : shapes) {
    tensors = small_llama();
    named(tensors, name).shape = shape;
    expect_refused(open_all(tensors, small_llama_config()), ErrorCode::kCorruptFile, name, "the config needs [");
  }
  for (const char* name : {"model.layers.0.mlp.gate_proj.weight", "model.norm.weight"}) {
    tensors = small_llama();
    named(tensors, name).dtype = "I32";
    expect_refused(open_all(tensors, small_llama_config()), ErrorCode::kUnsupported, name, "is I32; it must be BF16, F16 or F32");
  }
  tensors = small_llama();
  named(tensors, "model.layers.0.mlp.gate_proj.weight").dtype = "U32";
  expect_refused(open_all(tensors, small_llama_config()), ErrorCode::kCorruptFile, "model.layers.0.mlp.gate_proj.weight", "no .scales");
}

TEST(Weights, RefusesParametersThatAreNotFinite) {
  const TempFolder folder;
  const std::string header = R"({"norm.weight":{"dtype":"F16","shape":[3],"data_offsets":[0,6]}})";
  folder.write("model.safetensors", safetensors_bytes(header, 0) + std::string("\0\x3c\0\x7c\0\x3c", 6));
  const auto weights = Weights::open(folder.path(), small_llama_config());
  ASSERT_TRUE(weights.ok());
  const auto norm = weights->vector("norm.weight", 3);
  ASSERT_FALSE(norm.ok());
  EXPECT_EQ(norm.error().subject, "norm.weight");
  EXPECT_NE(norm.error().message.find("a value at 1 that is not finite"), std::string::npos) << norm.error().message;
}

TEST(Weights, RefusesDuplicateNames) {
  SmallTensors tensors = small_llama();
  tensors.push_back({"language_model.model.norm.weight", "BF16", {64}});  // the same tensor under another prefix
  const auto status = open_all(tensors, small_llama_config());
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("appears twice"), std::string::npos) << status.error().message;
  EXPECT_NE(status.error().message.find("language_model.model.norm.weight"), std::string::npos) << status.error().message;
  EXPECT_NE(status.error().message.find(" model.norm.weight"), std::string::npos) << status.error().message;

  const TempFolder folder;  // in two files
  folder.write("a.safetensors", small_file(small_llama()));
  folder.write("b.safetensors", small_file({{"model.norm.weight", "BF16", {64}}}));
  const auto two = Weights::open(folder.path(), small_llama_config());
  ASSERT_FALSE(two.ok());
  EXPECT_EQ(two.error().subject, "model.norm.weight");
}

TEST(Weights, RefusesOtherFormatsByName) {
  const std::pair<const char*, const char*> endings[] = {{"weight_scale_inv", "FP8"}, {"qweight", "AWQ or GPTQ"}, {"qzeros", "AWQ or GPTQ"},
                                                         {"g_idx", "GPTQ"},           {"weight_packed", "compressed-tensors"}, {"weight_scale", "FP8"}};
  for (const auto& [ending, words] : endings) {
    SmallTensors tensors = small_llama();
    const std::string name = std::string("model.layers.0.mlp.up_proj.") + ending;
    tensors.push_back({name, "F32", {1}});
    expect_refused(open_all(tensors, small_llama_config()), ErrorCode::kUnsupported, name, words);
  }
}

TEST(Weights, TheHeadIsDecidedByTheFiles) {
  for (const bool stated : {false, true}) {
    Config config = small_llama_config();
    config.tie_word_embeddings = stated;
    SmallTensors tensors = small_llama();
    EXPECT_TRUE(open_all(tensors, config).ok());
    tensors.push_back({"lm_head.weight", "BF16", {96, 64}});
    const TempFolder folder;
    folder.write("model.safetensors", small_file(tensors));
    const auto weights = Weights::open(folder.path(), config);
    ASSERT_TRUE(weights.ok());
    EXPECT_TRUE(weights->has("lm_head"));
    EXPECT_TRUE(take_all_tensors(config, *weights).ok());
  }
}

TEST(Weights, DerivesBitsAndGroupsFromShapes) {
  const Config config = small_llama_config();
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64}) {
      SmallTensors tensors = small_llama();
      quantise(tensors, "model.embed_tokens", bits, group);
      quantise(tensors, "model.layers.0.mlp.down_proj", 8, 128);
      tensors.push_back({"lm_head.weight", "BF16", {96, 64}});
      quantise(tensors, "lm_head", bits, 32);
      named(tensors, "lm_head.scales").dtype = named(tensors, "lm_head.biases").dtype = "F16";
      const TempFolder folder;
      folder.write("model.safetensors", small_file(tensors));
      const auto weights = Weights::open(folder.path(), config);
      ASSERT_TRUE(weights.ok()) << weights.error().message;
      const auto w = weights->linear("embed_tokens", 96, 64);
      ASSERT_TRUE(w.ok()) << w.error().message;
      EXPECT_TRUE(w->affine);
      EXPECT_EQ(w->bits, bits);
      EXPECT_EQ(w->group_size, group);
      EXPECT_EQ(w->weight.shape[1], 64 * bits / 32);
      EXPECT_EQ(w->scales.bytes, w->biases.bytes);
      EXPECT_TRUE(take_all_tensors(config, *weights).ok());
      std::size_t modules = 0, bytes = 0;
      for (const auto& f : weights->formats()) modules += f.modules, bytes += f.bytes;
      EXPECT_EQ(modules, 9u);
      EXPECT_EQ(bytes + 3 * 64 * 2, weights->file_bytes() - 8 - [&] {
        std::uint64_t header;
        std::memcpy(&header, small_file(tensors).data(), 8);
        return header;
      }());
    }
  }
}

TEST(Weights, VerifiesTheQuantisationBlock) {
  SmallTensors tensors = small_llama();
  quantise(tensors, "model.layers.0.mlp.up_proj", 4, 64);
  const std::string codes = "model.layers.0.mlp.up_proj.weight", scales = "model.layers.0.mlp.up_proj.scales";
  Config config = small_llama_config();
  config.quantization = {true, 4, 64, {}};
  EXPECT_TRUE(open_all(tensors, config).ok());
  config.quantization.bits = 8;  // 8 bits in groups of 32 have the same number of scales for each word
  expect_refused(open_all(tensors, config), ErrorCode::kCorruptFile, codes,
                 "has 4 bits in groups of 64 by its shape, but config.json's quantization says 8 in groups of 64");
  config.quantization.overrides["layers.0.mlp.up_proj"] = {false, 4, 64};
  EXPECT_TRUE(open_all(tensors, config).ok());
  config.quantization.overrides["layers.0.mlp.up_proj"] = {false, 4, 32};
  expect_refused(open_all(tensors, config), ErrorCode::kCorruptFile, codes, "says 4 in groups of 32");
  config.quantization.overrides["layers.0.mlp.up_proj"] = {true, 0, 0};
  expect_refused(open_all(tensors, config), ErrorCode::kCorruptFile, scales, "says that the module is plain");
  config.quantization.overrides = {{"layers.0.mlp.down_proj", {false, 4, 64}}};
  config.quantization.bits = 4;
  expect_refused(open_all(tensors, config), ErrorCode::kCorruptFile, "model.layers.0.mlp.down_proj.weight", "has no .scales");
}

TEST(Weights, RefusesBrokenQuantisedModules) {
  const std::string module = "model.layers.0.mlp.up_proj";  // 128 x 64
  struct Case {
    const char* ending;
    const char* dtype;
    std::vector<std::int64_t> shape;
    ErrorCode code;
    std::string subject;
    const char* words;
  };
  const ErrorCode bad = ErrorCode::kCorruptFile, no = ErrorCode::kUnsupported;
  const std::vector<Case> cases = {
      {".weight", "BF16", {128, 8}, no, module + ".weight", "has .scales but is BF16"},
      {".weight", "U32", {128, 14}, bad, module + ".weight", "bits for each"},   // 7 bits
      {".weight", "U32", {128, 9}, bad, module + ".weight", "bits for each"},    // 4.5 bits
      {".weight", "U32", {128, 32}, bad, module + ".weight", "bits for each"},   // 16 bits
      {".weight", "U32", {128, 0}, bad, module + ".weight", "bits for each"},
      {".weight", "U32", {64, 8}, bad, module + ".weight", "the config needs [128, 64], packed"},
      {".weight", "U32", {1024}, bad, module + ".weight", "the config needs"},
      {".scales", "U8", {128, 1}, no, module + ".scales", "is U8"},               // mxfp4
      {".scales", "BF16", {128, 3}, bad, module + ".scales", "the config needs [128, 64 / group]"},
      {".scales", "BF16", {128, 0}, bad, module + ".scales", "the config needs"},
      {".scales", "BF16", {64, 1}, bad, module + ".scales", "the config needs"},
      {".scales", "BF16", {128}, bad, module + ".scales", "the config needs"},
      {".scales", "BF16", {128, 4}, bad, module + ".biases", "the config needs [128, 4]"},
      {".biases", "BF16", {128, 2}, bad, module + ".biases", "the config needs [128, 1]"},
      {".biases", "I32", {128, 1}, no, module + ".biases", "is I32"},
  };
  for (const auto& c : cases) {
    SmallTensors tensors = small_llama();
    quantise(tensors, module, 4, 64);
    SmallTensor& t = named(tensors, module + c.ending);
    t.dtype = c.dtype, t.shape = c.shape;
    expect_refused(open_all(tensors, small_llama_config()), c.code, c.subject, c.words);
  }
  SmallTensors tensors = small_llama();
  quantise(tensors, module, 4, 64);
  named(tensors, module + ".scales").shape = named(tensors, module + ".biases").shape = {128, 4};
  expect_refused(open_all(tensors, small_llama_config()), no, module + ".scales", "groups of 16");
  tensors = small_llama();
  quantise(tensors, module, 4, 64);
  remove_tensor(tensors, module + ".biases");
  expect_refused(open_all(tensors, small_llama_config()), no, module + ".scales", "has no .biases");
}

TEST(Weights, ConvolutionsTellTheLayout) {
  const std::string conv = "model.language_model.layers.0.linear_attn.conv1d.weight";
  SmallTensors tensors = small_hybrid();
  for (const bool converted : {false, true}) {
    if (converted) named(tensors, conv).shape = {128, 4, 1};
    const TempFolder folder;
    folder.write("model.safetensors", small_file(tensors));
    const auto weights = Weights::open(folder.path(), small_hybrid_config());
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    EXPECT_EQ(weights->norms_are_offset(), !converted);
    const auto taps = weights->conv("layers.0.linear_attn.conv1d.weight", 128, 4);
    ASSERT_TRUE(taps.ok()) << taps.error().message;
    EXPECT_EQ(taps->size(), 512u);
  }
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{128, 4}, {128, 2, 4}, {128, 1, 3}, {4, 1, 128}, {128, 1, 1}}) {
    tensors = small_hybrid();
    named(tensors, conv).shape = shape;
    const auto status = open_all(tensors, small_hybrid_config());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().subject, conv) << status.error().message;
  }
  // Two linear layers that contradict each other.
  tensors = small_hybrid();
  tensors.push_back({"model.language_model.layers.1.linear_attn.conv1d.weight", "BF16", {128, 4, 1}});
  expect_refused(open_all(tensors, small_hybrid_config()), ErrorCode::kCorruptFile, "model.language_model.layers.1.linear_attn.conv1d.weight",
                 "raw and converted layouts are mixed");
}

TEST(Weights, StateParametersMayBeOfEveryFloatType) {
  for (const char* dtype : {"F32", "BF16", "F16"}) {
    SmallTensors tensors = small_hybrid();
    for (const char* name : {"A_log", "dt_bias", "norm.weight"}) named(tensors, std::string("model.language_model.layers.0.linear_attn.") + name).dtype = dtype;
    const auto status = open_all(tensors, small_hybrid_config());
    EXPECT_TRUE(status.ok()) << dtype << ": " << status.error().message;
  }
}

class Shards : public ::testing::Test {
 protected:
  void SetUp() override {
    SmallTensors tensors = small_llama();
    first_.assign(tensors.begin(), tensors.begin() + 3);
    second_.assign(tensors.begin() + 3, tensors.end());
    folder_.write("model-00001-of-00002.safetensors", small_file(first_));
    folder_.write("model-00002-of-00002.safetensors", small_file(second_));
  }
  std::string index(const std::string& second_name = "model-00002-of-00002.safetensors", const std::string& extra = "") const {
    std::string text = "{\"metadata\":{\"total_size\":1},\"weight_map\":{";
    for (const auto& t : first_) text += "\"" + t.name + "\":\"model-00001-of-00002.safetensors\",";
    for (const auto& t : second_) text += "\"" + t.name + "\":\"" + second_name + "\",";
    text += extra;
    if (text.back() == ',') text.pop_back();
    return text + "}}";
  }
  Status open() const {
    LOCKSTEP_ASSIGN(const Weights weights, Weights::open(folder_.path(), small_llama_config()));
    return take_all_tensors(small_llama_config(), weights);
  }
  static constexpr const char* kIndex = "model.safetensors.index.json";
  TempFolder folder_;
  SmallTensors first_, second_;
};

TEST_F(Shards, OpenWithAndWithoutAnIndex) {
  EXPECT_TRUE(open().ok()) << open().error().message;
  folder_.write(kIndex, index());
  EXPECT_TRUE(open().ok()) << open().error().message;
  // With an index, files that it does not name are left alone; so are hidden files.
  folder_.write("consolidated.safetensors", "no safetensors at all");
  folder_.write("._model-00001-of-00002.safetensors", "no safetensors at all");
  EXPECT_TRUE(open().ok()) << open().error().message;
}

TEST_F(Shards, RefuseNamesThatLeaveTheFolder) {
  for (const char* name : {"../model-00002-of-00002.safetensors", "/etc/model.safetensors", "a/b.safetensors", "a\\\\b.safetensors", "..",
                           "", ".hidden.safetensors", "model.bin", "x\\u0000.safetensors", "..safetensors"}) {
    folder_.write(kIndex, index(name));
    const auto status = open();
    ASSERT_FALSE(status.ok()) << name;
    EXPECT_NE(status.error().message.find("it must be the bare name of a .safetensors file"), std::string::npos) << name << ": " << status.error().message;
    EXPECT_NE(status.error().message.find(kIndex), std::string::npos) << status.error().message;
    EXPECT_NE(status.error().message.find("weight_map.model.layers.0"), std::string::npos) << status.error().message;
  }
}

TEST_F(Shards, RefuseLinksThatLeaveTheFolder) {
  const TempFolder outside;
  outside.write("second.safetensors", small_file(second_));
  const auto shard = folder_.path() / "model-00002-of-00002.safetensors";
  std::filesystem::remove(shard);
  std::filesystem::create_symlink(outside.path() / "second.safetensors", shard);
  for (const bool with_index : {false, true}) {
    if (with_index) folder_.write(kIndex, index());
    expect_refused(open(), ErrorCode::kCorruptFile, "model-00002-of-00002.safetensors", "leads out of the folder");
  }
  // A link that stays inside is fine.
  std::filesystem::remove(shard);
  folder_.write("second.safetensors.real", small_file(second_));
  std::filesystem::create_symlink("second.safetensors.real", shard);
  EXPECT_TRUE(open().ok()) << open().error().message;
}

TEST_F(Shards, OpenInsideAHubCache) {
  const TempFolder cache;
  const auto revision = cache.path() / "snapshots" / "0123abc";
  std::filesystem::create_directories(revision);
  std::filesystem::create_directories(cache.path() / "blobs");
  std::filesystem::create_directories(cache.path() / "refs");
  cache.write("blobs/1", small_file(first_));
  cache.write("blobs/2", small_file(second_));
  std::filesystem::create_symlink("../../blobs/1", revision / "model-00001-of-00002.safetensors");
  std::filesystem::create_symlink("../../blobs/2", revision / "model-00002-of-00002.safetensors");
  const auto weights = Weights::open(revision, small_llama_config());
  EXPECT_TRUE(weights.ok()) << weights.error().message;
  // The exception is for the cache's own blobs alone.
  cache.write("refs/2", small_file(second_));
  std::filesystem::remove(revision / "model-00002-of-00002.safetensors");
  std::filesystem::create_symlink("../../refs/2", revision / "model-00002-of-00002.safetensors");
  const auto out = Weights::open(revision, small_llama_config());
  ASSERT_FALSE(out.ok());
  EXPECT_NE(out.error().message.find("leads out of the folder"), std::string::npos) << out.error().message;
}

TEST_F(Shards, RefuseAnIndexThatContradictsTheFiles) {
  folder_.write(kIndex, index("model-00009-of-00002.safetensors"));
  expect_refused(open(), ErrorCode::kNotFound, "model-00009-of-00002.safetensors", "the shard is missing");
  folder_.write(kIndex, index("model-00002-of-00002.safetensors", "\"model.ghost.weight\":\"model-00001-of-00002.safetensors\""));
  expect_refused(open(), ErrorCode::kCorruptFile, "model.ghost.weight", "tensor model.ghost.weight is not in model-00001-of-00002.safetensors");
  folder_.write(kIndex, index("model-00001-of-00002.safetensors"));  // the tensors lie in the other file
  EXPECT_FALSE(open().ok());
  const std::pair<const char*, const char*> bad[] = {{"", "not valid JSON"},
                                                     {"{}", "weight_map is missing"},
                                                     {R"({"weight_map":[]})", "must be an object"},
                                                     {R"({"weight_map":{}})", "is empty"},
                                                     {R"({"weight_map":{"a":7}})", "must be a string"},
                                                     {R"({"weight_map":{"a":null}})", "must be the bare name"},
                                                     {R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})", "appears twice"}};
  for (const auto& [text, words] : bad) {
    folder_.write(kIndex, text);
    const auto status = open();
    ASSERT_FALSE(status.ok()) << text;
    EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message;
    EXPECT_NE(status.error().message.find(kIndex), std::string::npos) << status.error().message;
  }
  std::filesystem::remove(folder_.path() / kIndex);
  std::filesystem::create_directory(folder_.path() / kIndex);
  EXPECT_FALSE(open().ok());
}

TEST(Weights, RefusesFoldersWithoutWeights) {
  const TempFolder folder;
  const auto empty = Weights::open(folder.path(), small_llama_config());
  ASSERT_FALSE(empty.ok());
  EXPECT_NE(empty.error().message.find("has no .safetensors file"), std::string::npos) << empty.error().message;
  EXPECT_FALSE(Weights::open(folder.path() / "none", small_llama_config()).ok());
  std::filesystem::create_directory(folder.path() / "model.safetensors");
  const auto directory = Weights::open(folder.path(), small_llama_config());
  ASSERT_FALSE(directory.ok());
  EXPECT_NE(directory.error().message.find("not a regular file"), std::string::npos) << directory.error().message;
}

TEST(Weights, DroppedWeightsStayReadable) {
  const TempFolder folder;
  SmallTensors tensors = small_llama();
  tensors[0].shape = {96, 64};
  folder.write("model.safetensors", small_file(tensors));
  const auto weights = Weights::open(folder.path(), small_llama_config());
  ASSERT_TRUE(weights.ok());
  const Weight w = weights->linear("embed_tokens", 96, 64).value();
  const std::vector<std::byte> before(w.weight.data, w.weight.data + w.weight.bytes);
  weights->drop(w);
  EXPECT_EQ(std::memcmp(before.data(), w.weight.data, before.size()), 0);
}

}  // namespace
}  // namespace lockstep::checkpoint
