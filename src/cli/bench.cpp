// lockstep bench: speeds of a model beside the bounds of this machine, measured in the same run.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <cstdio>

#include "cli/commands.h"
#include "cli/machine_bounds.h"
#include "cli/token_bytes.h"
#include "engine/memory_budget.h"
#include "models/model.h"
#include "sampling/sampler.h"
#include "server/server.h"
#include "state/sequence_state.h"

namespace lockstep::cli {
namespace json = boost::json;
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kTurns = 5;  // of bounds, prompt and a share of the decode steps

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Prompt ids of no meaning, the same in every run.
std::vector<std::int32_t> bench_prompt(std::int64_t tokens, std::int64_t vocabulary) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
  for (std::size_t i = 0; i < ids.size(); i++) ids[i] = std::int32_t((i * 7919 + 13) % std::size_t(vocabulary));
  return ids;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Bounds {
  double read_bytes = 0;  // a second
  double operations = 0;  // a second
  struct Unpack {
    std::string format;
    int bits = 0, group_size = 0;
    double weight_bytes = 0, rate = 0;
  };
  std::vector<Unpack> unpack;
  double unpack_seconds() const {  // a token, of the quantised weights
    double s = 0;
    for (const Unpack& u : unpack) s += u.weight_bytes / u.rate;
    return s;
  }
};

struct Speeds {
  double prefill_tokens_per_second = 0, decode_tokens_per_second = 0;
};

/// Bounds and speeds in turns, kTurns of each, so that a neighbour's load meets both; of everything the median.
class Measurement {
 public:
  Measurement(models::Model& model, kernels::Isa isa, int threads, double token_bytes)
      : model_(model), isa_(isa), pool_(threads), token_bytes_(token_bytes) {
    for (const auto& f : model.weights().formats()) {
      Bounds::Unpack u{f.format, 0, 0, double(f.bytes), 0};
      if (std::sscanf(f.format.c_str(), "%d-bit group %d", &u.bits, &u.group_size) == 2) bounds_.unpack.push_back(u);
    }
  }

  double read_rate_now() { return read_rate(pool_, std::size_t(std::min(token_bytes_, 1e9))); }

  Status run(memory::Ledger& ledger, const Options& options, int max_rows) {
    state::Store store(model_.backend(), ledger);
    LOCKSTEP_ASSIGN(const auto state, state::SequenceState::create(store));
    std::vector<double> read, operations, prefill;
    std::vector<std::vector<double>> unpack(bounds_.unpack.size());
    for (int turn = 0; turn < kTurns; turn++) {
      read.push_back(read_rate_now());
      operations.push_back(multiply_add_rate(pool_));
      for (std::size_t i = 0; i < unpack.size(); i++)
        unpack[i].push_back(unpack_rate(pool_, isa_, bounds_.unpack[i].bits, bounds_.unpack[i].group_size));
      LOCKSTEP_ASSIGN(const double rate, prompt(*state, options, max_rows));
      prefill.push_back(rate);
      LOCKSTEP_TRY(decode(*state, (options.bench_tokens + kTurns - 1) / kTurns));
    }
    bounds_.read_bytes = median(read);
    bounds_.operations = median(operations);
    for (std::size_t i = 0; i < unpack.size(); i++) bounds_.unpack[i].rate = median(unpack[i]);
    speeds_ = {median(prefill), 1 / median(steps_)};
    return {};
  }

  const Bounds& bounds() const { return bounds_; }
  const Speeds& speeds() const { return speeds_; }

 private:
  Status step(state::SequenceState& state, std::span<const std::int32_t> tokens, models::Segment::Logits logits) {
    LOCKSTEP_TRY(state.prepare(std::int64_t(tokens.size())));
    models::Segment segment{&state, tokens, int(tokens.size()), logits};
    model_.forward({&segment, 1});
    return {};
  }

  /// Tokens a second of a prompt from an empty state.
  Result<double> prompt(state::SequenceState& state, const Options& options, int max_rows) {
    const std::vector<std::int32_t> ids = bench_prompt(options.bench_prompt, model_.shape().vocab);
    state.clear();
    const auto begin = Clock::now();
    for (std::size_t at = 0; at < ids.size(); at += std::size_t(max_rows)) {
      const auto chunk = std::span(ids).subspan(at, std::min(std::size_t(max_rows), ids.size() - at));
      LOCKSTEP_TRY(step(state, chunk, at + chunk.size() == ids.size() ? models::Segment::Logits::kLast : models::Segment::Logits::kNone));
    }
    return double(ids.size()) / seconds_since(begin);
  }

  /// Greedy steps; their seconds go to steps_.
  Status decode(state::SequenceState& state, int tokens) {
    sampling::Sampler sampler(model_.shape().vocab);
    for (int i = 0; i < tokens; i++) {
      const auto begin = Clock::now();
      const std::int32_t token = sampler.draw(model_.logits(0), {}, std::uint64_t(state.length()), {});
      LOCKSTEP_TRY(step(state, {&token, 1}, models::Segment::Logits::kLast));
      steps_.push_back(seconds_since(begin));
    }
    return {};
  }

  models::Model& model_;
  kernels::Isa isa_;
  kernels::cpu::ThreadPool pool_;
  double token_bytes_;
  std::vector<double> steps_;
  Bounds bounds_;
  Speeds speeds_;
};

/// Share of a streamed reply's time over HTTP that is not spent inside forwards: JSON, text, draws, hand-over between threads, sockets.
Result<double> measure_server_share(const Options& options) {
  LOCKSTEP_ASSIGN(engine::EngineOptions flags, engine_options(options));
  flags.parallel = 1;
  LOCKSTEP_ASSIGN(const auto engine, engine::Engine::create(flags));
  end_progress();
  server::ServerOptions server_options;
  server_options.port = 0;
  LOCKSTEP_ASSIGN(const auto server, server::Server::start(*engine, server_options));
  const auto ids = bench_prompt(options.bench_prompt, engine->info().tokenizer->largest_id() + 1);
  const std::string body =
      fmt::format(R"({{"prompt":[{}],"max_tokens":{},"ignore_eos":true,"stream":true}})", fmt::join(ids, ","), options.bench_tokens);
  const auto begin = Clock::now();
  boost::asio::ip::tcp::iostream http("127.0.0.1", std::to_string(server->port()));
  http << "POST /v1/completions HTTP/1.1\r\nhost: bench\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: "
       << body.size() << "\r\n\r\n"
       << body << std::flush;
  double forward_ms = -1;
  constexpr std::string_view kForward = "\"forward_ms\":";
  for (std::string line; std::getline(http, line);)
    if (const auto at = line.find(kForward); at != std::string::npos)
      forward_ms = std::strtod(line.c_str() + at + kForward.size(), nullptr);
  const double wall_ms = 1000 * seconds_since(begin);
  server->stop(5);
  if (forward_ms < 0) return Error{ErrorCode::kInternal, "the server's reply has no forward_ms", "forward_ms"};
  return 1 - forward_ms / wall_ms;
}

void print_report(const models::Model& model, const Bounds& bounds, const Speeds& speeds, const TokenBytes& bytes, const Options& options,
                  const engine::EngineOptions& flags) {
  const double read_bound = bounds.read_bytes / bytes.total(), unpack_seconds = bounds.unpack_seconds();
  const double decode_bound = unpack_seconds > 0 ? std::min(read_bound, 1 / unpack_seconds) : read_bound;
  const double per_token = prefill_operations(model, options.bench_prompt) + head_operations(model) / options.bench_prompt;
  fmt::print("model     {}, {}, {} threads\n", flags.folder.string(), kernels::isa_name(flags.isa.value_or(kernels::best_isa())),
             flags.threads);
  for (const auto& f : model.weights().formats())
    fmt::print("          {} in {} modules, {:.1f} MB\n", f.format, f.modules, double(f.bytes) / 1e6);
  fmt::print("machine   reads {:.1f} GB/s over {:.0f} MB; {:.0f} GFLOP/s of 256-bit multiply-adds from registers\n",
             bounds.read_bytes / 1e9, std::min(bytes.total(), 1e9) / 1e6, bounds.operations / 1e9);
  for (const auto& u : bounds.unpack)
    fmt::print("          unpack-and-dot from L1, {}: {:.1f} GB/s of packed weights\n", u.format, u.rate / 1e9);
  fmt::print("decode    {:.1f} tokens/s after a prompt of {}\n", speeds.decode_tokens_per_second, options.bench_prompt);
  fmt::print(
      "          bytes a token: {:.1f} MB (weights {:.1f}, recurrent state {:.1f}, K/V {:.1f}): bound {:.1f} tokens/s, reached {:.0f}%\n",
      bytes.total() / 1e6, bytes.weights / 1e6, bytes.recurrent / 1e6, bytes.kv / 1e6, read_bound,
      100 * speeds.decode_tokens_per_second / read_bound);
  if (unpack_seconds > 0)
    fmt::print("          unpack-and-dot: bound {:.1f} tokens/s; of the larger of both times reached {:.0f}%\n", 1 / unpack_seconds,
               100 * speeds.decode_tokens_per_second / decode_bound);
  fmt::print("prefill   {:.1f} tokens/s, a prompt of {}, head for its last row\n", speeds.prefill_tokens_per_second, options.bench_prompt);
  if (bounds.operations > 0)
    fmt::print("          {:.2f} GFLOP a token: multiply-add bound {:.1f} tokens/s, reached {:.0f}%\n", per_token / 1e9,
               bounds.operations / per_token, 100 * speeds.prefill_tokens_per_second * per_token / bounds.operations);
}

Status run_bench(const Options& options) {
  LOCKSTEP_ASSIGN(engine::EngineOptions flags, engine_options(options));
  if (flags.threads <= 0) flags.threads = engine::usable_cores();
  models::LoadOptions load;
  load.isa = flags.isa.value_or(kernels::best_isa());
  load.threads = flags.threads;
  load.context = flags.context;
  load.progress = flags.progress;
  load.inspect_only = options.bounds_only;
  memory::Ledger ledger;
  LOCKSTEP_ASSIGN(auto model, models::Model::load(flags.folder, load, ledger));
  end_progress();
  if (options.bench_prompt + options.bench_tokens > model->shape().context)
    return Error{ErrorCode::kContextLengthExceeded,
                 fmt::format("--prompt {} and --tokens {} are above the context of {}", options.bench_prompt, options.bench_tokens,
                             model->shape().context),
                 "prompt"};
  const double length = options.bench_prompt + options.bench_tokens / (2.0 * kTurns);  // of decode steps: half way through a turn
  const TokenBytes bytes = token_bytes(*model, length);
  Measurement measurement(*model, load.isa, load.threads, bytes.total());
  if (options.bounds_only) {
    const double read = measurement.read_rate_now(), bound = read / bytes.total();
    const json::object out{
        {"bytes_per_token", bytes.total()}, {"read_gb_per_second", read / 1e9}, {"bytes_bound_tokens_per_second", bound}};
    if (options.json)
      fmt::print("{}\n", json::serialize(out));
    else
      fmt::print("{:.1f} MB a token at {:.1f} GB/s: bound {:.1f} tokens/s\n", bytes.total() / 1e6, read / 1e9, bound);
    return {};
  }
  LOCKSTEP_TRY(measurement.run(ledger, options, load.max_rows));
  const Bounds bounds = measurement.bounds();
  const Speeds speeds = measurement.speeds();
  if (!options.json) print_report(*model, bounds, speeds, bytes, options, flags);
  const double per_token = prefill_operations(*model, options.bench_prompt) + head_operations(*model) / options.bench_prompt;
  const double decode_operations = model->row_operations(length) + head_operations(*model);
  model.reset();
  LOCKSTEP_ASSIGN(const double share, measure_server_share(options));
  if (!options.json) {
    fmt::print("server    {:.1f}% of a streamed reply's time is not inside forwards ({} prompt, {} tokens)\n", 100 * share,
               options.bench_prompt, options.bench_tokens);
    return {};
  }
  json::object out{{"bytes_per_token", bytes.total()},
                   {"weight_bytes_per_token", bytes.weights},
                   {"operations_per_token", decode_operations},
                   {"read_gb_per_second", bounds.read_bytes / 1e9},
                   {"bytes_bound_tokens_per_second", bounds.read_bytes / bytes.total()}};
  out["gflop_per_second"] = bounds.operations / 1e9;
  out["unpack_bound_tokens_per_second"] = bounds.unpack_seconds() > 0 ? json::value(1 / bounds.unpack_seconds()) : json::value(nullptr);
  out["decode_tokens_per_second"] = speeds.decode_tokens_per_second;
  out["prefill_tokens_per_second"] = speeds.prefill_tokens_per_second;
  out["prefill_bound_tokens_per_second"] = bounds.operations / per_token;
  out["server_share"] = share;
  fmt::print("{}\n", json::serialize(out));
  return {};
}

}  // namespace

int bench(const Options& options) {
  spdlog::set_level(spdlog::level::warn);
  kernels::cpu::flush_denormals();
  const Status status = run_bench(options);
  return status ? kExitOk : fail(status.error());
}

}  // namespace lockstep::cli
