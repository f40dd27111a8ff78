// What tests that run a scheduler on a real model share: a small model's options and requests.
#pragma once
#include <random>
#include <string>
#include <vector>

#include "lanes/request.h"
#include "models/model.h"

namespace lockstep::testing {

inline models::LoadOptions lane_options() {
  models::LoadOptions options;
  options.isa = kernels::best_isa();
  options.threads = 2;
  options.context = 1024;
  options.max_rows = 96;
  options.max_logit_rows = 32;
  return options;
}


/// n requests, greedy and drawn in turn; prompt i has prompt + 3 i tokens, the first `shared` of them those of prompt 0.
inline std::vector<lanes::Request> lane_requests(int n, int prompt, int reply, unsigned seed, int shared = 0) {
  std::mt19937 random(seed);
  std::vector<lanes::Request> out;
  for (int i = 0; i < n; i++) {
    lanes::Request r;
    r.id = std::to_string(i);
    if (i) r.prompt_ids.assign(out[0].prompt_ids.begin(), out[0].prompt_ids.begin() + shared);
    while (int(r.prompt_ids.size()) < prompt + 3 * i) r.prompt_ids.push_back(std::int32_t(10 + random() % 7000));
    r.max_tokens = reply;
    r.sampling.temperature = i % 2 ? 0.9 : 0;
    r.sampling.seed = unsigned(i);
    out.push_back(r);
  }
  return out;
}

}  // namespace lockstep::testing
