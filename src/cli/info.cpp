// lockstep info: what a folder is, what it needs, and whether it can be served. Nothing is packed and no weight value is read but norms and
// other small vectors.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <set>

#include "cli/commands.h"
#include "cli/token_bytes.h"
#include "engine/memory_budget.h"
#include "models/model.h"

namespace lockstep::cli {
namespace json = boost::json;
namespace {

/// Facts in the order they are found; printed as aligned lines or as one JSON object.
class Facts {
 public:
  explicit Facts(bool as_json) : as_json_(as_json) {}
  void add(const char* name, const std::string& words, json::value value) {
    if (as_json_) {
      std::string key(name);
      std::replace(key.begin(), key.end(), ' ', '_');
      object_[key] = std::move(value);
    } else {
      fmt::print("{:<12}{}\n", name, words);
    }
  }
  void add(const char* name, const std::string& words) { add(name, words, json::value(words)); }
  void finish() {
    if (as_json_) fmt::print("{}\n", json::serialize(object_));
  }

 private:
  bool as_json_;
  json::object object_;
};

std::string megabytes(std::size_t bytes) { return fmt::format("{:.1f} MB", double(bytes) / 1e6); }

void add_shape(Facts& facts, const checkpoint::Config& c) {
  const auto attention = std::count(c.full_attention.begin(), c.full_attention.end(), true);
  std::string family = c.model_type;
  json::object shape{{"hidden_size", c.hidden_size},
                     {"num_hidden_layers", c.num_hidden_layers},
                     {"num_attention_heads", c.num_attention_heads},
                     {"num_key_value_heads", c.num_key_value_heads},
                     {"head_dim", c.head_dim},
                     {"intermediate_size", c.intermediate_size},
                     {"vocab_size", c.vocab_size}};
  std::string words =
      fmt::format("{} layers, hidden {}, intermediate {}, {} query and {} K/V heads of {}, vocabulary {}", c.num_hidden_layers,
                  c.hidden_size, c.intermediate_size, c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.vocab_size);
  if (c.linear_num_value_heads > 0) {
    family += fmt::format(": {} Gated DeltaNet and {} attention layers", c.num_hidden_layers - attention, attention);
    words += fmt::format("; DeltaNet {} key heads of {}, {} value heads of {}", c.linear_num_key_heads, c.linear_key_head_dim,
                         c.linear_num_value_heads, c.linear_value_head_dim);
    shape["attention_layers"] = attention;
  }
  facts.add("family", family, json::value(c.model_type));
  facts.add("shape", words, std::move(shape));
}

/// The weights' formats, and which of them are rounded at load.
void add_formats(Facts& facts, const models::Model& model) {
  const checkpoint::Weights& weights = model.weights();
  json::array list;
  std::string words, rounded;
  for (const auto& f : weights.formats()) {
    list.push_back(json::object{{"format", f.format}, {"modules", f.modules}, {"bytes", f.bytes}});
    words += fmt::format("{}{} in {} modules ({})", words.empty() ? "" : "; ", f.format, f.modules, megabytes(f.bytes));
    if (f.format == "f16" || f.format == "f32")
      rounded += fmt::format("{}{} modules of {} are rounded once to bf16 at load", rounded.empty() ? "" : "; ", f.modules, f.format);
  }
  facts.add("formats", words, std::move(list));
  if (!rounded.empty()) facts.add("rounding", rounded);
  facts.add("file bytes", megabytes(weights.file_bytes()), json::value(weights.file_bytes()));
  const auto [skipped, skipped_bytes] = weights.skipped();
  if (skipped > 0)
    facts.add("skipped", fmt::format("{} vision and MTP tensors ({})", skipped, megabytes(skipped_bytes)),
              json::object{{"tensors", skipped}, {"bytes", skipped_bytes}});
}

/// Bytes held at the context's end by one request, beside the weights.
void add_memory(Facts& facts, const models::Model& model) {
  const kernels::ModelShape& shape = model.shape();
  const auto [recurrent, token] = state_bytes(shape);
  const std::size_t scratch = kernels::cpu_scratch_bytes(shape, {kernels::best_isa(), engine::usable_cores(), 513, 1});
  const std::size_t request = recurrent + token * std::size_t(shape.context), available = engine::available_memory_bytes();
  const std::size_t needed = model.weight_bytes() + scratch + request;
  facts.add("memory",
            fmt::format("weights {}, scratch {}, a request {} + {} bytes a token ({} at the context's end): {} in all, {} may be used now",
                        megabytes(model.weight_bytes()), megabytes(scratch), megabytes(recurrent), token, megabytes(request),
                        megabytes(needed), megabytes(available)),
            json::object{{"weight_bytes", model.weight_bytes()},
                         {"scratch_bytes", scratch},
                         {"state_bytes", recurrent},
                         {"token_bytes", token},
                         {"request_bytes", request},
                         {"needed_bytes", needed},
                         {"available_bytes", available}});
}

void add_sampling(Facts& facts, const checkpoint::GenerationConfig& g) {
  if (!g.do_sample.value_or(false)) {
    facts.add("sampling", "greedy", json::object{{"temperature", 0}});
    return;
  }
  facts.add("sampling",
            fmt::format("temperature {}, top_k {}, top_p {}, min_p {}", g.temperature.value_or(1), g.top_k.value_or(0), g.top_p.value_or(1),
                        g.min_p.value_or(0)),
            json::object{{"temperature", g.temperature.value_or(1)},
                         {"top_k", g.top_k.value_or(0)},
                         {"top_p", g.top_p.value_or(1)},
                         {"min_p", g.min_p.value_or(0)}});
}

/// Tokenizer, template, stop ids. kNotFound of a template is a fact, not a fault.
Status add_text(Facts& facts, const std::filesystem::path& folder, const checkpoint::Config& config) {
  LOCKSTEP_ASSIGN(const auto tokenizer, text::Tokenizer::load(folder));
  facts.add("tokenizer", fmt::format("ids 0 to {}", tokenizer->largest_id()), json::value(tokenizer->largest_id()));
  auto chat_template = text::ChatTemplate::load(folder, tokenizer);
  if (!chat_template.ok() && chat_template.error().code != ErrorCode::kNotFound) return chat_template.error();
  const bool thinks = tokenizer->id_of("<think>") && tokenizer->id_of("</think>");
  facts.add("template",
            !chat_template.ok() ? "none: /v1/completions and run --raw only"
            : thinks            ? "chat, with think tokens"
                                : "chat",
            json::value(chat_template.ok()));
  LOCKSTEP_ASSIGN(const auto generation, checkpoint::read_generation_config(folder));
  std::set<std::int32_t> stops(config.eos_token_ids.begin(), config.eos_token_ids.end());
  stops.insert(generation.eos_token_ids.begin(), generation.eos_token_ids.end());
  if (const auto eos = tokenizer->eos_id()) stops.insert(*eos);
  facts.add("stop ids", fmt::format("{}", fmt::join(stops, " ")), json::array(stops.begin(), stops.end()));
  add_sampling(facts, generation);
  if (tokenizer->largest_id() >= config.vocab_size)
    return Error{ErrorCode::kCorruptFile,
                 fmt::format("tokenizer.json has id {}, but vocab_size is {}", tokenizer->largest_id(), config.vocab_size), ""};
  return {};
}

Status describe(Facts& facts, const std::filesystem::path& folder, const Options& options) {
  LOCKSTEP_ASSIGN(const checkpoint::Config config, checkpoint::read_config(folder));
  add_shape(facts, config);
  models::LoadOptions load;
  load.context = options.context;
  load.inspect_only = true;
  memory::Ledger ledger;
  LOCKSTEP_ASSIGN(const auto model, models::Model::load(folder, load, ledger));
  add_formats(facts, *model);
  LOCKSTEP_TRY(add_text(facts, folder, config));
  facts.add("context", fmt::format("{} (the model's limit is {})", model->shape().context, config.max_position_embeddings),
            json::object{{"tokens", model->shape().context}, {"limit", config.max_position_embeddings}});
  add_memory(facts, *model);
  return {};
}

}  // namespace

int info(const Options& options) {
  const auto folder = model_folder(options.folder);
  if (!folder) return fail(folder.error());
  Facts facts(options.json);
  facts.add("folder", folder->string());
  const Status status = describe(facts, *folder, options);
  facts.add("serves", status ? "yes" : "no: " + status.error().message,
            status ? json::value(true) : json::value(json::object{{"error", status.error().message}, {"subject", status.error().subject}}));
  facts.finish();
  return status ? kExitOk : kExitFailed;
}

}  // namespace lockstep::cli
