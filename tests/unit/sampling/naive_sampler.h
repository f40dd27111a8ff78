// The draw as docs/exactness.md item 8 says it, with a full sort and nothing skipped: what Sampler is held against.
#pragma once
#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "base/exact_math.h"
#include "sampling/sampler.h"

namespace lockstep::sampling {

struct NaiveDraw {
  std::int32_t token = -1;
  std::vector<std::int32_t> kept;  // candidates after the cuts, in their order
};

inline NaiveDraw naive_draw(std::span<const float> logits, const SamplingParams& p, std::uint64_t index, TokenMask mask = {}) {
  std::vector<std::int32_t> order;
  for (std::int32_t id = 0; id < std::int32_t(logits.size()); id++)
    if (mask.empty() || (std::size_t(id / 32) < mask.size() && (mask[std::size_t(id / 32)] >> (id % 32) & 1))) order.push_back(id);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[std::size_t(a)] > logits[std::size_t(b)]; });
  if (p.temperature <= 0) return {order[0], {order[0]}};

  if (p.top_k > 0 && std::size_t(p.top_k) < order.size()) order.resize(std::size_t(p.top_k));
  std::vector<double> x;
  for (auto id : order) x.push_back(double(logits[std::size_t(id)]) / p.temperature);
  if (!std::isfinite(x[0])) return {order[0], {order[0]}};
  std::vector<std::uint64_t> masses;
  for (double v : x) masses.push_back(std::uint64_t(std::nearbyint(exact::exp(v - x[0]) * 1099511627776.0)));
  const double total = double(std::accumulate(masses.begin(), masses.end(), std::uint64_t(0)));

  NaiveDraw draw;
  double best = -1e300;
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < order.size(); before += masses[i++]) {
    if (i > 0 && p.top_p < 1 && double(before) >= p.top_p * total) break;
    if (i > 0 && p.min_p > 0 && x[i] - x[0] < exact::log(p.min_p)) break;
    if (masses[i] == 0) continue;
    draw.kept.push_back(order[i]);
    const double score = x[i] + keyed_noise(p.seed, index, order[i]);
    if (score > best || (score == best && order[i] < draw.token)) {
      best = score;
      draw.token = order[i];
    }
  }
  return draw;
}

}  // namespace lockstep::sampling
