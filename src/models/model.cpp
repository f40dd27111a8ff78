#include "models/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/registry.h"

namespace lockstep::models {
namespace {

constexpr std::int64_t kRopeMargin = 16;  // rows of a window past the context (EXACTNESS item 7)

Result<std::int64_t> resolve_context(const checkpoint::Config& config, std::int64_t asked) {
  if (asked > config.max_position_embeddings)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("context {} is above the model's limit of {} positions", asked, config.max_position_embeddings), "context"};
  return asked ? asked : std::min(config.max_position_embeddings, kDefaultContext);
}

}  // namespace

Result<std::unique_ptr<Model>> Model::load(const std::filesystem::path& folder, const LoadOptions& options, memory::Ledger& ledger) {
  LOCKSTEP_ASSIGN(checkpoint::Config config, checkpoint::read_config(folder));
  LOCKSTEP_ASSIGN(const Family* family, find_family(config.model_type));
  LOCKSTEP_ASSIGN(const std::int64_t context, resolve_context(config, options.context));
  LOCKSTEP_ASSIGN(const kernels::ModelShape shape, shape_of(config, context));
  LOCKSTEP_ASSIGN(checkpoint::Weights weights, checkpoint::Weights::open(folder, config));

  std::unique_ptr<Model> model = family->make();
  model->config_ = std::move(config);
  model->shape_ = shape;
  model->weights_ = std::make_unique<checkpoint::Weights>(std::move(weights));
  const checkpoint::Config& c = model->config_;
  if (options.inspect_only) {
    LOCKSTEP_TRY(model->load_weights(*family, ledger, options.progress));
    return model;
  }
  const kernels::CpuOptions cpu{options.isa, options.threads, options.max_rows, options.max_logit_rows};
  const std::size_t rope_bytes = std::size_t(context + kRopeMargin) * std::size_t(c.rotary_dim) * sizeof(float);
  LOCKSTEP_ASSIGN(model->scratch_reservation_,
                  ledger.reserve(memory::Tag::kScratch, kernels::cpu_scratch_bytes(shape, cpu) + rope_bytes));
  model->rope_ = std::make_unique<kernels::RopeTable>(kernels::make_rope_table(c.rotary_dim, c.rope_theta, c.rope_scaling, context + kRopeMargin));
  model->backend_ = kernels::make_cpu_backend(shape, cpu, model->rope_.get());
  LOCKSTEP_TRY(model->load_weights(*family, ledger, options.progress));
  return model;
}

Status Model::load_weights(const Family& family, memory::Ledger& ledger, const Progress& progress) {
  Loader loader(*this, ledger, progress);
  const bool offset = family.offset_norms && weights_->norms_are_offset();
  LOCKSTEP_ASSIGN(embedding_, loader.matrix("embed_tokens", config_.vocab_size, config_.hidden_size));
  head_.weight = embedding_;
  if (weights_->has("lm_head")) {  // before the layers: its source and its copy are in memory together for a moment
    LOCKSTEP_ASSIGN(head_.weight, loader.matrix("lm_head", config_.vocab_size, config_.hidden_size));
  }
  LOCKSTEP_TRY(family.load(*this, loader));
  LOCKSTEP_ASSIGN(head_.norm, loader.norm("norm.weight", config_.hidden_size, offset));
  head_.eps = float(config_.rms_norm_eps);
  LOCKSTEP_TRY(weights_->check_all_used());
  for (const auto& m : matrices_) step_bytes_ += m->read_bytes;
  if (head_.weight != embedding_) step_bytes_ -= embedding_->read_bytes;
  return {};
}

double Model::row_operations(double keys) const {
  const kernels::ModelShape& s = shape_;
  const double hidden = double(s.hidden), mlp = 3 * hidden * double(s.intermediate);
  const double heads = double(s.heads * s.head_dim), kv = double(s.kv_heads * s.head_dim);
  const double attention = hidden * (heads * (s.output_gate ? 3 : 2) + 2 * kv) + 2 * heads * keys;  // q, gate, o, k, v; scores and values
  const double values = double(s.value_heads * s.value_dim);
  const double delta_net = hidden * (double(s.conv_channels()) + 2 * values + 2 * double(s.value_heads)) + 3 * double(s.key_dim) * values;
  return 2 * (double(s.attention_layers) * (attention + mlp) + double(s.delta_net_layers) * (delta_net + mlp));
}

void Model::forward(std::span<Segment> segments) {
  segment_views_.clear();
  token_ids_.clear();
  positions_.clear();
  logit_rows_.clear();
  for (Segment& segment : segments) {
    const int rows = int(segment.tokens.size()), first = int(token_ids_.size());
    segment.state->keep(0);
    LOCKSTEP_CHECK(rows >= 1 && segment.stand >= 1 && segment.stand <= rows && rows - segment.stand <= 15);
    LOCKSTEP_CHECK(segment.state->prepared(rows) && segment.state->length() + rows <= shape_.context + kRopeMargin);
    segment_views_.push_back({segment.state->view(), first, rows, segment.stand});
    for (int i = 0; i < rows; i++) {
      LOCKSTEP_CHECK(segment.tokens[std::size_t(i)] >= 0 && segment.tokens[std::size_t(i)] < shape_.vocab);
      token_ids_.push_back(segment.tokens[std::size_t(i)]);
      positions_.push_back(std::int32_t(segment.state->length()) + i);
      if (segment.logits == Segment::Logits::kAll || (segment.logits == Segment::Logits::kLast && i == rows - 1)) logit_rows_.push_back(first + i);
    }
  }
  backend_->begin({segment_views_, token_ids_, positions_, logit_rows_});
  backend_->embed(*embedding_);
  run_layers();
  backend_->head(head_);
  for (Segment& segment : segments) segment.state->advance(int(segment.tokens.size()), segment.stand);
}

}  // namespace lockstep::models
