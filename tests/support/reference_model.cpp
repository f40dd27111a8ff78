#include "support/reference_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "base/bfloat16.h"
#include "base/float16.h"

namespace lockstep::testing {
namespace {

using Rows = std::vector<double>;  // [tokens][width]
using kernels::RopeScaling;

template <class T>
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}

float element(const TensorView& t, std::size_t i) {
  float f;
  std::uint16_t h;
  switch (t.dtype) {
    case DType::kF32: std::memcpy(&f, t.data + 4 * i, 4); return f;
    case DType::kF16: std::memcpy(&h, t.data + 2 * i, 2); return half_to_float(h);
    default: std::memcpy(&h, t.data + 2 * i, 2); return to_float(h);
  }
}

/// Row `row` of a weight as a matmul sees it, or as an embedding.
void decode_row(const Weight& w, std::size_t row, bool embedding, double* out) {
  const std::size_t in = std::size_t(w.in_features), group = std::size_t(w.group_size), bits = std::size_t(w.bits);
  if (!w.affine) {
    for (std::size_t i = 0; i < in; i++) out[i] = to_float(to_bf16(element(w.weight, row * in + i)));
    return;
  }
  const std::byte* codes = w.weight.data + row * (in * bits / 8);
  for (std::size_t i = 0; i < in; i++) {
    unsigned code = 0;
    for (std::size_t b = 0; b < bits; b++) code |= (unsigned(codes[(i * bits + b) / 8]) >> ((i * bits + b) % 8) & 1u) << b;
    const std::size_t g = row * (in / group) + i / group;
    const float scale = element(w.scales, g), bias = element(w.biases, g);
    out[i] = embedding ? double(to_float(to_bf16(std::fma(scale, float(code), bias)))) : double(scale) * code + double(bias);
  }
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

double dot(const double* a, const double* b, std::size_t n) {
  double sum[4] = {};
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (std::size_t j = 0; j < 4; j++) sum[j] += a[i + j] * b[i + j];
  for (; i < n; i++) sum[0] += a[i] * b[i];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/// Rows of `width` over their root mean square, times w.
void rms_norm(double* x, std::size_t rows, const std::vector<double>& w, double eps) {
  const std::size_t n = w.size();
  for (std::size_t r = 0; r < rows; r++, x += n) {
    const double inverse = 1 / std::sqrt(dot(x, x, n) / double(n) + eps);
    for (std::size_t i = 0; i < n; i++) x[i] *= inverse * w[i];
  }
}

class Reference {
 public:
  Reference(const checkpoint::Config& config, const checkpoint::Weights& weights, std::span<const std::int32_t> ids)
      : c_(config), w_(weights), tokens_(ids.size()), hidden_(std::size_t(config.hidden_size)) {
    const Weight table = must(w_.linear("embed_tokens", c_.vocab_size, c_.hidden_size));
    x_.resize(tokens_ * hidden_);
    for (std::size_t t = 0; t < tokens_; t++) {
      if (ids[t] < 0 || ids[t] >= c_.vocab_size) throw std::runtime_error("token id out of range");
      decode_row(table, std::size_t(ids[t]), true, &x_[t * hidden_]);
    }
    make_frequencies();
  }

  void layer(std::size_t i) {
    const std::string at = "layers." + std::to_string(i) + ".";
    Rows u = normed(at + "input_layernorm.weight");
    add(c_.full_attention[i] ? attention(at + "self_attn.", u) : delta_net(at + "linear_attn.", u));
    u = normed(at + "post_attention_layernorm.weight");
    const Rows gate = linear(at + "mlp.gate_proj", u, hidden_, c_.intermediate_size, c_.mlp_bias);
    Rows up = linear(at + "mlp.up_proj", u, hidden_, c_.intermediate_size, c_.mlp_bias);
    for (std::size_t j = 0; j < up.size(); j++) up[j] *= silu(gate[j]);
    add(linear(at + "mlp.down_proj", up, std::size_t(c_.intermediate_size), c_.hidden_size, c_.mlp_bias));
  }

  Rows logits(std::size_t first_row) {
    Rows y = normed("norm.weight");
    y.erase(y.begin(), y.begin() + std::ptrdiff_t(first_row * hidden_));
    return linear(w_.has("lm_head") ? "lm_head" : "embed_tokens", y, hidden_, c_.vocab_size, false);
  }

 private:
  /// x [rows][in] times the transpose of a weight, plus its bias.
  Rows linear(const std::string& module, const Rows& x, std::size_t in, std::int64_t out_features, bool has_bias) {
    const std::size_t rows = x.size() / in, out = std::size_t(out_features);
    const Weight w = must(w_.linear(module, out_features, std::int64_t(in)));
    const std::vector<float> bias = has_bias ? must(w_.vector(module + ".bias", out_features)) : std::vector<float>(out);
    Rows y(rows * out);
    std::vector<double> row(in);
    for (std::size_t o = 0; o < out; o++) {
      decode_row(w, o, false, row.data());
      for (std::size_t r = 0; r < rows; r++) y[r * out + o] = dot(&x[r * in], row.data(), in) + bias[o];
    }
    return y;
  }

  /// A norm weight; raw Qwen3.5 layouts hold w of 1 + w.
  std::vector<double> norm_weight(const std::string& name, std::int64_t n) {
    const std::vector<float> w = must(w_.vector(name, n));
    std::vector<double> out(w.begin(), w.end());
    if (w_.norms_are_offset())
      for (std::size_t i = 0; i < w.size(); i++) out[i] = double(1.0f + w[i]);
    return out;
  }
  Rows normed(const std::string& name) {
    Rows u = x_;
    rms_norm(u.data(), tokens_, norm_weight(name, c_.hidden_size), c_.rms_norm_eps);
    return u;
  }
  void add(const Rows& y) {
    for (std::size_t i = 0; i < x_.size(); i++) x_[i] += y[i];
  }

  /// models.md 7.3.
  void make_frequencies() {
    const RopeScaling& s = c_.rope_scaling;
    const double pi = std::acos(-1.0);
    for (int j = 0; j < c_.rotary_dim / 2; j++) {
      double inverse = std::pow(c_.rope_theta, -2.0 * j / c_.rotary_dim);
      if (s.type == RopeScaling::Type::kLinear) inverse /= s.factor;
      if (s.type == RopeScaling::Type::kLlama3) {
        const double length = 2 * pi / inverse, low = s.original_max_position_embeddings / s.low_freq_factor,
                     high = s.original_max_position_embeddings / s.high_freq_factor;
        const double blend = (s.original_max_position_embeddings / length - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
        if (length > low) inverse /= s.factor;
        else if (length >= high) inverse = (1 - blend) * inverse / s.factor + blend * inverse;
      }
      frequencies_.push_back(inverse);
    }
  }
  /// Rotate-half on the first rotary_dim components.
  void rotate(double* head, std::size_t position) const {
    const std::size_t half = frequencies_.size();
    for (std::size_t j = 0; j < half; j++) {
      const double angle = double(position) * frequencies_[j], a = head[j], b = head[j + half];
      head[j] = a * std::cos(angle) - b * std::sin(angle);
      head[j + half] = b * std::cos(angle) + a * std::sin(angle);
    }
  }

  Rows attention(const std::string& at, const Rows& u) {
    const bool gated = c_.model_type == "qwen3_5", head_norms = c_.model_type != "llama";
    const std::size_t heads = std::size_t(c_.num_attention_heads), kv_heads = std::size_t(c_.num_key_value_heads), dim = std::size_t(c_.head_dim);
    const std::size_t q_head = gated ? 2 * dim : dim;  // a head's query rows, then its gate rows
    const Rows p = linear(at + "q_proj", u, hidden_, std::int64_t(heads * q_head), c_.attention_bias);
    Rows k = linear(at + "k_proj", u, hidden_, std::int64_t(kv_heads * dim), c_.attention_bias);
    const Rows v = linear(at + "v_proj", u, hidden_, std::int64_t(kv_heads * dim), c_.attention_bias);
    Rows q(tokens_ * heads * dim);
    for (std::size_t r = 0; r < tokens_ * heads; r++) std::copy_n(&p[r * q_head], dim, &q[r * dim]);
    if (head_norms) rms_norm(q.data(), tokens_ * heads, norm_weight(at + "q_norm.weight", c_.head_dim), c_.rms_norm_eps);
    if (head_norms) rms_norm(k.data(), tokens_ * kv_heads, norm_weight(at + "k_norm.weight", c_.head_dim), c_.rms_norm_eps);
    for (std::size_t t = 0; t < tokens_; t++) {
      for (std::size_t h = 0; h < heads; h++) rotate(&q[(t * heads + h) * dim], t);
      for (std::size_t h = 0; h < kv_heads; h++) rotate(&k[(t * kv_heads + h) * dim], t);
    }
    Rows out(tokens_ * heads * dim);
    std::vector<double> scores(tokens_);
    for (std::size_t t = 0; t < tokens_; t++) {
      for (std::size_t h = 0; h < heads; h++) {
        const std::size_t kv = h / (heads / kv_heads);
        for (std::size_t s = 0; s <= t; s++) scores[s] = dot(&q[(t * heads + h) * dim], &k[(s * kv_heads + kv) * dim], dim) / std::sqrt(double(dim));
        const double largest = *std::max_element(scores.begin(), scores.begin() + std::ptrdiff_t(t) + 1);
        double total = 0, *o = &out[(t * heads + h) * dim];
        for (std::size_t s = 0; s <= t; s++) {
          const double weight = std::exp(scores[s] - largest);
          total += weight;
          for (std::size_t d = 0; d < dim; d++) o[d] += weight * v[(s * kv_heads + kv) * dim + d];
        }
        for (std::size_t d = 0; d < dim; d++) o[d] = o[d] / total * (gated ? sigmoid(p[(t * heads + h) * q_head + dim + d]) : 1);
      }
    }
    return linear(at + "o_proj", out, heads * dim, c_.hidden_size, c_.attention_bias);
  }

  /// models.md 3.4 step 2: four taps, the last one on the current token; zero before position 0.
  Rows convolve(const Rows& m, const std::vector<float>& taps, std::size_t channels) const {
    Rows out(m.size());
    for (std::size_t t = 0; t < tokens_; t++)
      for (std::size_t ch = 0; ch < channels; ch++) {
        double sum = 0;
        for (std::size_t j = 0; j < 4; j++)
          if (t + j >= 3) sum += double(taps[ch * 4 + j]) * m[(t + j - 3) * channels + ch];
        out[t * channels + ch] = silu(sum);
      }
    return out;
  }

  Rows delta_net(const std::string& at, const Rows& u) {
    const std::size_t key_heads = std::size_t(c_.linear_num_key_heads), heads = std::size_t(c_.linear_num_value_heads);
    const std::size_t dk = std::size_t(c_.linear_key_head_dim), dv = std::size_t(c_.linear_value_head_dim);
    const std::size_t keys = key_heads * dk, channels = 2 * keys + heads * dv;
    const Rows m = linear(at + "in_proj_qkv", u, hidden_, std::int64_t(channels), false);
    const Rows z = linear(at + "in_proj_z", u, hidden_, std::int64_t(heads * dv), false);
    const Rows b = linear(at + "in_proj_b", u, hidden_, std::int64_t(heads), false), a = linear(at + "in_proj_a", u, hidden_, std::int64_t(heads), false);
    const std::vector<float> a_log = must(w_.vector(at + "A_log", std::int64_t(heads))), dt_bias = must(w_.vector(at + "dt_bias", std::int64_t(heads)));
    const std::vector<float> norm = must(w_.vector(at + "norm.weight", std::int64_t(dv)));  // never an offset
    const Rows c = convolve(m, must(w_.conv(at + "conv1d.weight", std::int64_t(channels), 4)), channels);
    Rows out(tokens_ * heads * dv), state(heads * dk * dv);
    std::vector<double> k(dk), q(dk), d(dv);
    for (std::size_t t = 0; t < tokens_; t++) {
      const double* row = &c[t * channels];
      for (std::size_t h = 0; h < heads; h++) {
        const std::size_t key_head = h / (heads / key_heads);
        const double *raw_q = row + key_head * dk, *raw_k = row + keys + key_head * dk, *v = row + 2 * keys + h * dv;
        const double q_inverse = 1 / std::sqrt(dot(raw_q, raw_q, dk) + 1e-6) / std::sqrt(double(dk)), k_inverse = 1 / std::sqrt(dot(raw_k, raw_k, dk) + 1e-6);
        for (std::size_t i = 0; i < dk; i++) q[i] = raw_q[i] * q_inverse, k[i] = raw_k[i] * k_inverse;
        const double beta = sigmoid(b[t * heads + h]), decay = std::exp(-std::exp(double(a_log[h])) * softplus(a[t * heads + h] + double(dt_bias[h])));
        double *s = &state[h * dk * dv], *o = &out[(t * heads + h) * dv];
        step(s, q, k, v, beta, decay, d, o);
        const double inverse = 1 / std::sqrt(dot(o, o, dv) / double(dv) + c_.rms_norm_eps);
        for (std::size_t j = 0; j < dv; j++) o[j] *= inverse * double(norm[j]) * silu(z[(t * heads + h) * dv + j]);
      }
    }
    return linear(at + "out_proj", out, heads * dv, c_.hidden_size, false);
  }

  /// models.md 3.4 step 7; s [dk][dv].
  static void step(double* s, const std::vector<double>& q, const std::vector<double>& k, const double* v, double beta, double decay,
                   std::vector<double>& d, double* o) {
    const std::size_t dk = k.size(), dv = d.size();
    std::fill(d.begin(), d.end(), 0.0);
    for (std::size_t i = 0; i < dk; i++)
      for (std::size_t j = 0; j < dv; j++) {
        s[i * dv + j] *= decay;
        d[j] += s[i * dv + j] * k[i];
      }
    for (std::size_t j = 0; j < dv; j++) d[j] = beta * (v[j] - d[j]);
    for (std::size_t i = 0; i < dk; i++)
      for (std::size_t j = 0; j < dv; j++) {
        s[i * dv + j] += k[i] * d[j];
        o[j] += s[i * dv + j] * q[i];
      }
  }

  const checkpoint::Config& c_;
  const checkpoint::Weights& w_;
  std::size_t tokens_, hidden_;
  Rows x_;  // residual
  std::vector<double> frequencies_;
};

}  // namespace

std::vector<double> reference_logits(const checkpoint::Config& config, const checkpoint::Weights& weights, std::span<const std::int32_t> ids,
                                     std::size_t first_row) {
  if (first_row > ids.size()) throw std::runtime_error("first_row is past the last token");
  Reference reference(config, weights, ids);
  for (std::size_t i = 0; i < std::size_t(config.num_hidden_layers); i++) reference.layer(i);
  return reference.logits(first_row);
}

}  // namespace lockstep::testing
