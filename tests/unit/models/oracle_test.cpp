// Reference outputs of an independent implementation, under the policy of oracles/README.md (rules 1 to 3).
#include <boost/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "checkpoint/safetensors.h"
#include "support/fixtures.h"
#include "support/loaded_model.h"

namespace lockstep::testing {
namespace {

boost::json::value read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return boost::json::parse(text.str());
}

std::vector<std::int32_t> ids(const boost::json::value& v) {
  std::vector<std::int32_t> out;
  for (const auto& id : v.as_array()) out.push_back(std::int32_t(id.to_number<std::int64_t>()));
  return out;
}

struct Case {
  const char* checkpoint;
  double median_bound;  // logits, rule 3
};

class Oracle : public ::testing::TestWithParam<Case> {};

struct Report {
  int positions = 0, flips = 0;
  std::vector<double> errors;  // largest of the five a position
};

// Rules 1 and 3 at one reply position: logits of the row that predicts it.
void compare_row(std::span<const float> logits, const boost::json::value& top_ids, const boost::json::value& top_logits, Report& report,
                 const std::string& where) {
  const auto best_of_five = ids(top_ids);
  std::vector<double> reference;
  for (const auto& v : top_logits.as_array()) reference.push_back(v.to_number<double>());
  const std::int32_t best = std::int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const auto found = std::find(best_of_five.begin(), best_of_five.end(), best);
  ASSERT_NE(found, best_of_five.end()) << where << ": best id " << best << " is not among the reference's five";
  EXPECT_LE(reference[0] - reference[std::size_t(found - best_of_five.begin())], 0.2) << where;
  report.positions++;
  if (best != best_of_five[0]) {
    report.flips++;
    std::printf("  flip at %s: %d instead of %d, gap %.3f\n", where.c_str(), best, best_of_five[0],
                reference[0] - reference[std::size_t(found - best_of_five.begin())]);
  }
  double worst = 0;
  for (std::size_t i = 0; i < best_of_five.size(); i++)
    worst = std::max(worst, std::abs(double(logits[std::size_t(best_of_five[i])]) - reference[i]));
  report.errors.push_back(worst);
}

TEST_P(Oracle, TeacherForcedAndFree) {
  const std::string name = GetParam().checkpoint;
  const auto folder = checkpoint(name), replies_file = oracle(name + ".json"), prompts_file = oracle("prompts.json");
  LOCKSTEP_NEED_FIXTURE(folder);
  LOCKSTEP_NEED_FIXTURE(replies_file);
  LOCKSTEP_NEED_FIXTURE(prompts_file);
  LoadedModel loaded(folder);
  const auto prompts = read_json(prompts_file);
  const auto replies = read_json(replies_file);
  Report report;
  for (const auto& reply : replies.at("replies").as_array()) {
    const std::int64_t p = reply.at("prompt").to_number<std::int64_t>();
    const auto prompt = ids(prompts.at(std::size_t(p)).at("ids")), tokens = ids(reply.at("tokens"));
    auto state = loaded.sequence();
    std::vector<std::int32_t> all = prompt;
    all.insert(all.end(), tokens.begin(), tokens.end() - 1);
    std::vector<float> logits;
    const std::size_t vocab = std::size_t(loaded.model->shape().vocab);
    loaded.run_prompt(*state, std::span(prompt).first(prompt.size() - 1));
    const auto before = state->save();  // free running starts here too
    ASSERT_TRUE(before.ok());
    loaded.run_chunks(*state, std::span(all).subspan(prompt.size() - 1), 512, logits);
    for (std::size_t i = 0; i < tokens.size(); i++) {
      const auto row = std::span(logits).subspan(i * vocab, vocab);
      compare_row(row, reply.at("top5").at(i), reply.at("top5_logits").at(i), report,
                  name + " prompt " + std::to_string(p) + " token " + std::to_string(i));
    }
    // Rule 2: free-running greedy gives the reference's ids up to the first position where the teacher-forced best differs.
    auto free_state = loaded.sequence();
    free_state->restore(**before, (*before)->length);
    std::int32_t next = prompt.back();
    for (std::size_t i = 0; i < tokens.size(); i++) {
      loaded.run(*free_state, std::span(&next, 1), models::Segment::Logits::kLast);
      const auto row = loaded.model->logits(0);
      next = std::int32_t(std::max_element(row.begin(), row.end()) - row.begin());
      const auto forced = std::span(logits).subspan(i * vocab, vocab);
      ASSERT_EQ(next, std::max_element(forced.begin(), forced.end()) - forced.begin()) << name << " prompt " << p << " token " << i;
      if (next != tokens[i]) break;
    }
  }
  std::sort(report.errors.begin(), report.errors.end());
  const double median = report.errors[report.errors.size() / 2], p99 = report.errors[report.errors.size() * 99 / 100];
  std::printf("%s: %d positions, %d flips, logit error median %.4f, 99th percentile %.4f, largest %.4f\n", name.c_str(), report.positions, report.flips,
              median, p99, report.errors.back());
  EXPECT_LE(report.flips * 100, report.positions);
  EXPECT_LE(median, GetParam().median_bound);
  EXPECT_LE(p99, 0.15);
}

// All logits at the last prompt position, not only the five best.
TEST_P(Oracle, FirstLogits) {
  const std::string name = GetParam().checkpoint;
  const auto folder = checkpoint(name), file = oracle(name + ".first_logits.safetensors"), prompts_file = oracle("prompts.json");
  LOCKSTEP_NEED_FIXTURE(folder);
  LOCKSTEP_NEED_FIXTURE(file);
  LoadedModel loaded(folder);
  auto reference = checkpoint::open_safetensors(file);
  ASSERT_TRUE(reference.ok());
  const auto prompts = read_json(prompts_file);
  std::vector<double> errors;
  for (std::size_t p = 0; p < prompts.as_array().size(); p++) {
    const auto prompt = ids(prompts.at(p).at("ids"));
    auto state = loaded.sequence();
    for (std::size_t at = 0; at < prompt.size(); at += 512)
      loaded.run(*state, std::span(prompt).subspan(at, std::min<std::size_t>(512, prompt.size() - at)), models::Segment::Logits::kLast);
    const auto& tensor = reference->tensors.at("prompt_" + std::to_string(p));
    const auto row = loaded.model->logits(0);
    for (std::size_t i = 0; i < row.size(); i++) {
      float wanted;
      std::memcpy(&wanted, tensor.data + i * 4, 4);
      errors.push_back(std::abs(double(row[i]) - double(wanted)));
    }
  }
  std::sort(errors.begin(), errors.end());
  std::printf("%s first logits: median %.4f, 99.9th percentile %.4f\n", name.c_str(), errors[errors.size() / 2], errors[errors.size() * 999 / 1000]);
  EXPECT_LE(errors[errors.size() / 2], GetParam().median_bound);
  EXPECT_LE(errors[errors.size() * 999 / 1000], 0.35);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Oracle,
                         ::testing::Values(Case{"tiny-qwen3_5", 0.045}, Case{"tiny-qwen3_5-mlx-4bit", 0.045}, Case{"tiny-qwen3_5-mlx-mixed", 0.045},
                                           Case{"tiny-llama", 0.055}, Case{"tiny-llama-mlx-8bit", 0.055}, Case{"tiny-llama-drafter", 0.055}),
                         [](const auto& info) { return test_name(info.param.checkpoint); });

}  // namespace
}  // namespace lockstep::testing
