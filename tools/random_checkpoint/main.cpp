// random_checkpoint OUT_DIR: a valid checkpoint of random weights, of any shape, format and layout that Lockstep serves.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "support/random_checkpoint.h"

namespace {

using lockstep::testing::Format;
using lockstep::testing::RandomCheckpoint;

// "PATTERN=BITS:GROUP" or "PATTERN=plain".
RandomCheckpoint::Override parse_override(const std::string& text) {
  const auto equals = text.rfind('=');
  RandomCheckpoint::Override entry;
  if (equals != std::string::npos && equals > 0) {
    entry.pattern = text.substr(0, equals);
    const std::string value = text.substr(equals + 1);
    char rest = 0;
    if (value == "plain") {
      entry.plain = true;
      return entry;
    }
    if (std::sscanf(value.c_str(), "%d:%d%c", &entry.bits, &entry.group_size, &rest) == 2) return entry;
  }
  throw CLI::ValidationError("--override", text + " is not PATTERN=BITS:GROUP or PATTERN=plain");
}

// "none", "linear:FACTOR" or "llama3[:FACTOR[:ORIGINAL_POSITIONS]]".
lockstep::kernels::RopeScaling parse_scaling(const std::string& text) {
  using Type = lockstep::kernels::RopeScaling::Type;
  lockstep::kernels::RopeScaling scaling;
  char rest = 0;
  if (text == "none") return scaling;
  if (std::sscanf(text.c_str(), "linear:%lf%c", &scaling.factor, &rest) == 1) {
    scaling.type = Type::kLinear;
    return scaling;
  }
  scaling.type = Type::kLlama3;
  scaling.factor = 8;
  const int read = std::sscanf(text.c_str(), "llama3:%lf:%lf%c", &scaling.factor, &scaling.original_max_position_embeddings, &rest);
  if (text == "llama3" || read == 1 || read == 2) return scaling;
  throw CLI::ValidationError("--rope-scaling", text + " is not none, linear:FACTOR or llama3[:FACTOR[:POSITIONS]]");
}

void add_config_numbers(CLI::App& app, RandomCheckpoint& spec) {
  const auto number = [&](const char* flag, auto& field) { app.add_option(flag, field)->group("Config"); };
  number("--vocab-size", spec.vocab_size);
  number("--hidden-size", spec.hidden_size);
  number("--intermediate-size", spec.intermediate_size);
  number("--num-hidden-layers", spec.num_hidden_layers);
  number("--num-attention-heads", spec.num_attention_heads);
  number("--num-key-value-heads", spec.num_key_value_heads);
  number("--head-dim", spec.head_dim);
  number("--max-position-embeddings", spec.max_position_embeddings);
  number("--rms-norm-eps", spec.rms_norm_eps);
  number("--rope-theta", spec.rope_theta);
  number("--partial-rotary-factor", spec.partial_rotary_factor);
  number("--linear-num-key-heads", spec.linear_num_key_heads);
  number("--linear-num-value-heads", spec.linear_num_value_heads);
  number("--linear-key-head-dim", spec.linear_key_head_dim);
  number("--linear-value-head-dim", spec.linear_value_head_dim);
  number("--full-attention-interval", spec.full_attention_interval);
  app.add_option("--layer-kinds", spec.layer_kinds, "one letter a layer: l (linear) or f (full); without it the interval decides")->group("Config");
  app.add_option("--eos", spec.eos_token_ids, "stop ids, comma separated")->delimiter(',')->group("Config");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Writes a checkpoint of random weights to OUT_DIR."};
  // Flags override the preset, so the preset is applied first: one pass reads family and preset alone.
  std::string preset, family, out;
  CLI::App first;
  first.allow_extras();
  first.set_help_flag();
  for (CLI::App* pass : {&first, &app}) {
    pass->add_option("--preset", preset, "shape of a published model")->check(CLI::IsMember(lockstep::testing::random_checkpoint_presets()));
    pass->add_option("--family", family, "qwen3_5, llama or qwen3")->check(CLI::IsMember({"qwen3_5", "llama", "qwen3"}));
  }
  RandomCheckpoint spec;
  try {
    first.parse(argc, argv);
    if (preset.empty()) preset = family.empty() ? "tiny-qwen3_5" : "tiny-" + family;
    spec = std::move(lockstep::testing::random_checkpoint_preset(preset)).value();
    if (!family.empty() && family != spec.family) throw CLI::ValidationError("--family", "preset " + preset + " is of family " + spec.family);
    app.add_option("OUT_DIR", out, "absent or empty folder")->required();
    add_config_numbers(app, spec);
    std::string format = "bf16", scaling, scale_dtype = "bf16", state_dtype = "f32";
    std::vector<std::string> overrides;
    bool raw = false, converted = false, tied = false, untied = false;
    app.add_option("--format", format, "weights: bf16, f16, f32 or mlx (affine codes)")->check(CLI::IsMember({"bf16", "f16", "f32", "mlx"}));
    app.add_option("--bits", spec.bits, "2, 3, 4, 5, 6 or 8 (mlx)");
    app.add_option("--group", spec.group_size, "32, 64 or 128 (mlx)");
    app.add_option("--override", overrides, "PATTERN=BITS:GROUP or PATTERN=plain over module names such as layers.0.mlp.down_proj; repeatable (mlx)");
    app.add_option("--scale-dtype", scale_dtype, "scales and biases: bf16, f16 or f32 (mlx)")->check(CLI::IsMember({"bf16", "f16", "f32"}));
    app.add_option("--state-dtype", state_dtype, "A_log and linear_attn.norm: f32 or bf16 (qwen3_5)")->check(CLI::IsMember({"bf16", "f32"}));
    auto* raw_flag = app.add_flag("--raw", raw, "layout of Hugging Face releases (default, except mlx)");
    app.add_flag("--converted", converted, "layout of MLX conversions (default of mlx)")->excludes(raw_flag);
    auto* tied_flag = app.add_flag("--tied", tied, "the head is the embedding");
    app.add_flag("--untied", untied, "a head of its own")->excludes(tied_flag);
    app.add_flag("--attention-bias", spec.attention_bias, "biases of q, k, v and o (llama, qwen3)");
    app.add_flag("--mlp-bias", spec.mlp_bias, "biases of gate, up and down (llama)");
    app.add_option("--rope-scaling", scaling, "none, linear:FACTOR or llama3[:FACTOR[:POSITIONS]]");
    app.add_option("--seed", spec.seed, "of the weights");
    app.add_option("--shards", spec.shards, "files");
    app.add_option("--tokenizer", spec.tokenizer_folder, "copies the tokenizer and chat template of this folder");
    app.parse(argc, argv);
    spec.format = format == "mlx" ? Format::kMlx : format == "f16" ? Format::kF16 : format == "f32" ? Format::kF32 : Format::kBf16;
    spec.converted = converted || (spec.format == Format::kMlx && !raw && spec.family == "qwen3_5");
    if (tied || untied) spec.tied = tied;
    if (!scaling.empty()) spec.rope_scaling = parse_scaling(scaling);
    for (const auto& text : overrides) spec.overrides.push_back(parse_override(text));
    spec.scale_dtype = scale_dtype == "f16" ? lockstep::DType::kF16 : scale_dtype == "f32" ? lockstep::DType::kF32 : lockstep::DType::kBF16;
    spec.state_f32 = state_dtype == "f32";
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  if (auto status = lockstep::testing::write_random_checkpoint(spec, out); !status.ok()) {
    std::fprintf(stderr, "random_checkpoint: %s\n", status.error().message.c_str());
    return 1;
  }
  return 0;
}
