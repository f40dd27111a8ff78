#include "kernels/cpu/runtime/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::kernels {
namespace cpu {
namespace {

struct Sizes {  // elements of each scratch buffer, for one row where rows scale them
  std::size_t a, b, c, d, f, thread_floats, widest;
};

Sizes sizes(const ModelShape& s) {
  Sizes z{};
  const std::size_t q = std::size_t(s.heads * s.head_dim), kv = std::size_t(s.kv_heads * s.head_dim);
  const std::size_t inner = std::size_t(s.intermediate), v = std::size_t(s.value_heads * s.value_dim);
  z.a = std::max({q * (s.output_gate ? 2 : 1), std::size_t(s.delta_net_layers ? s.conv_channels() : 0), inner});
  z.b = std::max({kv, v, inner});
  z.c = std::max(kv, std::size_t(2 * s.value_heads));
  z.d = std::max({q, std::size_t(s.delta_net_layers ? s.conv_channels() : 0), v});
  z.f = v;
  z.thread_floats = 16;
  if (s.attention_layers)
    z.thread_floats = std::max(z.thread_floats, attention_scratch_floats(kRowsOfItem, int(s.heads / s.kv_heads), int(s.head_dim)));
  if (s.delta_net_layers) z.thread_floats = std::max(z.thread_floats, delta_net_scratch_floats(int(s.key_dim), int(s.value_dim)));
  z.thread_floats = (z.thread_floats + 15) / 16 * 16;
  z.widest = std::max({std::size_t(s.hidden), inner, q, v});
  return z;
}

}  // namespace

RecurrentLayout::RecurrentLayout(const ModelShape& s) {
  if (!s.delta_net_layers) return;
  k_row = s.key_heads * s.key_dim;
  g_row = s.value_heads;
  d_row = s.value_heads * s.value_dim;
  raw_row = s.conv_channels();
  auto take = [&](std::size_t bytes) {
    const std::size_t at = layer_bytes;
    layer_bytes += (bytes + 63) / 64 * 64;
    return at;
  };
  state_bytes = std::size_t(s.value_heads * s.key_dim * s.value_dim) * sizeof(float);
  state = take(state_bytes);
  open_k = take(std::size_t(kOpenSlots * k_row) * sizeof(bf16));
  open_g = take(std::size_t(kOpenSlots * g_row) * sizeof(float));
  open_cum = take(std::size_t(kOpenSlots * g_row) * sizeof(float));
  open_d = take(std::size_t(kOpenSlots * d_row) * sizeof(float));
  raw = take(std::size_t(kRawSlots * raw_row) * sizeof(bf16));
}

CpuBackend::CpuBackend(const ModelShape& shape, const CpuOptions& options, const RopeTable* rope)
    : shape_(shape), options_(options), rope_(rope), recurrent_(shape), pool_(options.threads), norm_(rms_norm_kernels(options.isa)),
      rope_kernels_(rope_kernels(options.isa)), attention_(attention_kernels(options.isa)), delta_net_(delta_net_kernels(options.isa)),
      elementwise_(elementwise_kernels(options.isa)) {
  const Sizes z = sizes(shape);
  const std::size_t rows = std::size_t(options.max_rows);
  matmul_scratch_ = make_matmul_scratch(std::max(options.max_rows, options.max_logit_rows), std::int64_t(z.widest), options.isa, options.threads);
  segments_.reserve(rows);
  token_ids_.reserve(rows);
  positions_.reserve(rows);
  logit_rows_.reserve(rows);
  items_.reserve(rows * std::size_t(std::max<std::int64_t>({shape.heads, shape.key_heads, 1})));
  key_counts_.resize(rows);
  residual_ = Scratch<bf16>(rows * std::size_t(shape.hidden));
  normed_ = Scratch<bf16>(rows * std::size_t(shape.hidden));
  a_ = Scratch<bf16>(rows * z.a);
  b_ = Scratch<bf16>(rows * z.b);
  c_ = Scratch<bf16>(rows * z.c);
  d_ = Scratch<bf16>(rows * z.d);
  f_ = Scratch<float>(rows * z.f);
  g_ = Scratch<float>(rows * std::size_t(shape.value_heads));
  beta_ = Scratch<float>(rows * std::size_t(shape.value_heads));
  logits_ = Scratch<float>(std::size_t(options.max_logit_rows) * std::size_t(shape.vocab));
  thread_scratch_floats_ = z.thread_floats;
  thread_scratch_ = Scratch<float>(z.thread_floats * std::size_t(pool_.size()));
  flags_ = Scratch<std::uint8_t>(rows);
  thread_flags_.resize(std::size_t(pool_.size()) * rows);
  head_flags_.reserve(std::size_t(options.max_logit_rows));

  if (shape.attention_layers) layout_.page_tokens = kPageTokens;
  layout_.page_bytes = std::size_t(shape.attention_layers) * std::size_t(shape.kv_heads) * 2 * head_page_bytes();
  layout_.recurrent_bytes = std::size_t(shape.delta_net_layers) * recurrent_.layer_bytes;
  layout_.snapshot_fixed_bytes = std::size_t(shape.delta_net_layers) * (recurrent_.state_bytes + 3 * std::size_t(recurrent_.raw_row) * sizeof(bf16));
  layout_.snapshot_row_bytes = std::size_t(shape.delta_net_layers) * recurrent_.open_row_bytes();
}

Result<std::unique_ptr<Matrix>> CpuBackend::load_matrix(const Weight& weight) {
  LOCKSTEP_ASSIGN(auto matrix, make_matrix(weight, options_.isa, pool_));
  auto handle = std::make_unique<MatrixHandle>();
  handle->out_features = matrix->out_features;
  handle->in_features = matrix->in_features;
  handle->owned_bytes = matrix->owned_bytes;
  handle->read_bytes = matrix->read_bytes;
  handle->matrix = std::move(matrix);
  return std::unique_ptr<Matrix>(std::move(handle));
}

std::unique_ptr<Vector> CpuBackend::load_vector(std::span<const float> values) {
  auto v = std::make_unique<VectorHandle>();
  v->values.assign(values.begin(), values.end());
  return v;
}

std::unique_ptr<Vector> CpuBackend::load_neg_exp(std::span<const float> values) {
  auto v = std::make_unique<VectorHandle>();
  v->values.resize(values.size());
  elementwise_.exp(values.data(), std::int64_t(values.size()), v->values.data());
  for (float& x : v->values) x = -x;
  return v;
}

void CpuBackend::begin(const BatchView& batch) {
  LOCKSTEP_CHECK(batch.token_ids.size() <= std::size_t(options_.max_rows) && batch.logit_rows.size() <= std::size_t(options_.max_logit_rows));
  flush_denormals();  // the caller is thread 0 of the pool
  rows_ = int(batch.token_ids.size());
  segments_.assign(batch.segments.begin(), batch.segments.end());
  token_ids_.assign(batch.token_ids.begin(), batch.token_ids.end());
  positions_.assign(batch.positions.begin(), batch.positions.end());
  logit_rows_.assign(batch.logit_rows.begin(), batch.logit_rows.end());
  std::memset(flags_.get(), 0, std::size_t(rows_));
}

void CpuBackend::embed(const Matrix& table) {
  over_rows(rows_, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; r++) host(&table)->embed(token_ids_[std::size_t(r)], residual_.get() + r * shape_.hidden);
  });
}

void CpuBackend::norm_rows(const Vector* weight, float eps) {
  over_rows(rows_, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; r++)
      norm_.rms_norm(residual_.get() + r * shape_.hidden, host(weight), int(shape_.hidden), eps, normed_.get() + r * shape_.hidden);
  });
}

void CpuBackend::project(const bf16* x, std::int64_t x_stride, std::span<const MatmulJob> jobs) {
  matmul(options_.isa, pool_, *matmul_scratch_, x, x_stride, rows_, jobs, flags_.get());
}

void CpuBackend::mlp(const MlpLayer& layer) {
  norm_rows(layer.norm, layer.eps);
  const std::int64_t inner = shape_.intermediate;
  const MatmulJob up[] = {{host(layer.gate), host(layer.gate_bias), MatmulOutput::kStoreBf16, a_.get(), inner},
                          {host(layer.up), host(layer.up_bias), MatmulOutput::kStoreBf16, b_.get(), inner}};
  project(normed_.get(), shape_.hidden, up);
  over_rows(rows_, [&](std::int64_t begin, std::int64_t end) {
    elementwise_.silu_mul(a_.get() + begin * inner, b_.get() + begin * inner, (end - begin) * inner, a_.get() + begin * inner);
  });
  const MatmulJob down[] = {{host(layer.down), host(layer.down_bias), MatmulOutput::kAddResidual, residual_.get(), shape_.hidden}};
  project(a_.get(), inner, down);
}

void CpuBackend::head(const HeadLayer& layer) {
  const int wanted = int(logit_rows_.size());
  if (!wanted) return;
  for (int i = 0; i < wanted; i++)
    norm_.rms_norm(residual_.get() + logit_rows_[std::size_t(i)] * shape_.hidden, host(layer.norm), int(shape_.hidden), layer.eps,
                   normed_.get() + i * shape_.hidden);
  head_flags_.assign(std::size_t(wanted), 0);
  const MatmulJob job[] = {{host(layer.weight), nullptr, MatmulOutput::kF32, logits_.get(), shape_.vocab}};
  matmul(options_.isa, pool_, *matmul_scratch_, normed_.get(), shape_.hidden, wanted, job, head_flags_.data());
  pool_.parallel_for(wanted, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; i++)
      flags_.get()[logit_rows_[std::size_t(i)]] |= head_flags_[std::size_t(i)] | elementwise_.not_finite(logits_.get() + i * shape_.vocab, shape_.vocab);
  });
}

std::span<const float> CpuBackend::logits(int i) {
  return {logits_.get() + std::int64_t(i) * shape_.vocab, std::size_t(shape_.vocab)};
}

void CpuBackend::parallel(int n, const std::function<void(int, int)>& f) {
  pool_.parallel_for(n, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t i = begin; i < end; i++) f(int(i), thread);
  });
}

}  // namespace cpu

Status cpu_supports(const Weight& weight) { return cpu::supports_matmul(weight); }

Status cpu_supports(const ModelShape& s) {
  auto refuse = [](std::string subject, std::string words) { return Error{ErrorCode::kUnsupported, std::move(words), std::move(subject)}; };
  if (s.hidden % 32 || s.intermediate % 32)
    return refuse("hidden_size", fmt::format("hidden_size {} and intermediate_size {} must be multiples of 32", s.hidden, s.intermediate));
  if (s.attention_layers && (s.head_dim % 16 || s.head_dim < 16 || s.head_dim > 512))
    return refuse("head_dim", fmt::format("head_dim {} is not a multiple of 16 between 16 and 512", s.head_dim));
  if (s.attention_layers && (s.kv_heads < 1 || s.heads % s.kv_heads))
    return refuse("num_key_value_heads", fmt::format("{} query heads are not a multiple of {} key/value heads", s.heads, s.kv_heads));
  if (!s.delta_net_layers) return {};
  if (s.conv_taps != cpu::kConvTaps)
    return refuse("linear_conv_kernel_dim", fmt::format("linear_conv_kernel_dim {} is not {}", s.conv_taps, cpu::kConvTaps));
  for (auto [name, dim] : {std::pair{"linear_key_head_dim", s.key_dim}, std::pair{"linear_value_head_dim", s.value_dim}})
    if (dim % 32 || dim < 32 || dim > 256) return refuse(name, fmt::format("{} {} is not a multiple of 32 between 32 and 256", name, dim));
  if (s.key_heads < 1 || s.value_heads % s.key_heads)
    return refuse("linear_num_value_heads", fmt::format("{} value heads are not a multiple of {} key heads", s.value_heads, s.key_heads));
  return {};
}

std::size_t cpu_scratch_bytes(const ModelShape& shape, const CpuOptions& o) {
  const auto z = cpu::sizes(shape);
  const std::size_t rows = std::size_t(o.max_rows);
  return rows * (std::size_t(shape.hidden) * 4 + (z.a + z.b + z.c + z.d) * 2 + z.f * 4 + std::size_t(shape.value_heads) * 8) +
         std::size_t(o.max_logit_rows) * std::size_t(shape.vocab) * 4 + z.thread_floats * 4 * std::size_t(o.threads) +
         cpu::matmul_scratch_bytes(std::max(o.max_rows, o.max_logit_rows), std::int64_t(z.widest), o.isa, o.threads);
}

std::unique_ptr<Backend> make_cpu_backend(const ModelShape& shape, const CpuOptions& options, const RopeTable* rope) {
  return std::make_unique<cpu::CpuBackend>(shape, options, rope);
}

}  // namespace lockstep::kernels
