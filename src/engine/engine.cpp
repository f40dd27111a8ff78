#include "engine/engine.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include "checkpoint/config.h"
#include "engine/memory_budget.h"
#include "kernels/cpu/runtime/thread_pool.h"
#include "lanes/scheduler.h"
#include "models/model.h"
#include "prompt_cache/identity.h"

namespace lockstep::engine {
namespace {

constexpr int kMostLanesByMemory = 16;
constexpr std::int64_t kUsualTokens = 2048;  // of a stream, where lanes are counted by memory

struct Submission {
  std::uint64_t handle = 0;
  Request request;
  EventSink sink;
};

// Union of config.json, generation_config.json and the tokenizer's eos (models.md 8.3).
std::vector<std::int32_t> stop_ids(const checkpoint::Config& config, const checkpoint::GenerationConfig& generation, const text::Tokenizer& tokenizer) {
  std::set<std::int32_t> ids(config.eos_token_ids.begin(), config.eos_token_ids.end());
  ids.insert(generation.eos_token_ids.begin(), generation.eos_token_ids.end());
  if (auto eos = tokenizer.eos_id()) ids.insert(*eos);
  return {ids.begin(), ids.end()};
}

// do_sample absent is greedy, as in the library that writes these files.
sampling::SamplingParams default_sampling(const checkpoint::GenerationConfig& g) {
  sampling::SamplingParams p;
  if (!g.do_sample.value_or(false)) return p;
  p.temperature = g.temperature.value_or(1.0);
  p.top_k = g.top_k.value_or(0);
  p.top_p = g.top_p.value_or(1.0);
  p.min_p = g.min_p.value_or(0.0);
  return p;
}

}  // namespace

struct Engine::Impl {
  EngineOptions options;
  ModelInfo info;
  memory::Ledger ledger;
  std::unique_ptr<models::Model> model;
  std::unique_ptr<state::Store> store;
  std::unique_ptr<lanes::Scheduler> scheduler;

  mutable std::mutex mutex;  // guards what follows; never held over a round
  std::condition_variable wake;
  std::deque<Submission> submissions;
  std::vector<std::uint64_t> cancels;
  std::unordered_map<std::uint64_t, std::string> ids;  // live handles -> request id
  lanes::SchedulerStats published;
  std::uint64_t next_handle = 1;
  bool stopping = false;
  std::thread thread;

  explicit Impl(EngineOptions o, std::size_t budget) : options(std::move(o)), ledger(budget) {}

  Status load();
  void describe(const checkpoint::GenerationConfig& generation);
  Status start_lanes();
  Result<std::unique_ptr<prompt_cache::DiskTier>> open_disk();
  Status check(const Request& request) const;
  void run();
  bool take_inbox();
  EventSink counted(std::uint64_t handle, int choices, EventSink sink);
  std::size_t request_bytes(std::int64_t tokens) const;
};

Status Engine::Impl::load() {
  models::LoadOptions load;
  load.isa = options.isa.value_or(kernels::best_isa());
  load.threads = options.threads;
  load.context = options.context;
  load.max_logit_rows = options.parallel ? options.parallel : kMostLanesByMemory;
  load.max_rows = options.max_rows + load.max_logit_rows;
  load.progress = options.progress;
  if (auto config = checkpoint::read_config(options.folder); !config.ok()) return config.error();  // before the tokenizer: its absence says more
  LOCKSTEP_ASSIGN(info.tokenizer, text::Tokenizer::load(options.folder));
  auto chat = text::ChatTemplate::load(options.folder, info.tokenizer);
  if (chat.ok()) info.chat_template = std::move(chat).value();
  else if (chat.error().code != ErrorCode::kNotFound) return chat.error();
  LOCKSTEP_ASSIGN(const auto generation, checkpoint::read_generation_config(options.folder));
  auto loaded = models::Model::load(options.folder, load, ledger);
  if (!loaded.ok() && loaded.error().code == ErrorCode::kDoesNotFit)
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("the budget of {} MiB does not hold the model: {}; `lockstep info` says what it needs, --memory-gib gives more",
                             ledger.view().budget_bytes >> 20, loaded.error().message),
                 "memory-gib"};
  LOCKSTEP_ASSIGN(model, std::move(loaded));
  if (info.tokenizer->largest_id() >= model->config().vocab_size)
    return Error{ErrorCode::kCorruptFile,
                 fmt::format("tokenizer.json has id {}, but vocab_size is {}", info.tokenizer->largest_id(), model->config().vocab_size), "tokenizer.json"};
  store = std::make_unique<state::Store>(model->backend(), ledger);
  describe(generation);
  return start_lanes();
}

void Engine::Impl::describe(const checkpoint::GenerationConfig& generation) {
  info.name = std::filesystem::absolute(options.folder).lexically_normal().filename().string();
  if (info.name.empty()) info.name = std::filesystem::absolute(options.folder).lexically_normal().parent_path().filename().string();
  info.family = model->config().model_type;
  info.context = model->shape().context;
  info.model_limit = model->config().max_position_embeddings;
  info.stop_ids = stop_ids(model->config(), generation, *info.tokenizer);
  info.think_start = info.tokenizer->id_of("<think>");
  info.think_end = info.tokenizer->id_of("</think>");
  info.default_sampling = default_sampling(generation);
  info.weight_bytes = model->weight_bytes();
  info.isa = kernels::isa_name(options.isa.value_or(kernels::best_isa()));
  info.threads = options.threads;
}

Status Engine::Impl::start_lanes() {
  LOCKSTEP_ASSIGN(auto disk, open_disk());  // before the check: it holds a page
  const std::size_t needed = request_bytes(info.context);
  if (!ledger.fits(needed))
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("a request of {} tokens needs {} MiB beside the weights' {} MiB, but the budget is {} MiB; a smaller --context "
                             "or a larger --memory-gib would do",
                             info.context, needed >> 20, ledger.view().held_bytes >> 20, ledger.view().budget_bytes >> 20),
                 "context"};
  if (options.parallel == 0) {
    const memory::LedgerView view = ledger.view();
    const std::size_t fit = (view.budget_bytes - view.held_bytes) / std::max<std::size_t>(1, request_bytes(std::min(kUsualTokens, info.context)));
    options.parallel = int(std::clamp<std::size_t>(fit, 1, kMostLanesByMemory));
  }
  info.parallel = options.parallel;
  lanes::SchedulerOptions lanes;
  lanes.parallel = options.parallel;
  lanes.prompt_cache_bytes = options.prompt_cache_bytes.value_or(ledger.view().budget_bytes / 2);
  lanes.stop_ids = info.stop_ids;
  lanes.vocabulary = info.tokenizer->largest_id() + 1;
  lanes.tokenizer = info.tokenizer;
  scheduler = std::make_unique<lanes::Scheduler>(*model, *store, lanes, std::move(disk));
  return {};
}

Result<std::unique_ptr<prompt_cache::DiskTier>> Engine::Impl::open_disk() {
  if (options.prompt_cache_dir.empty()) return std::unique_ptr<prompt_cache::DiskTier>();
  if (options.prompt_cache_bytes == std::size_t(0))
    return Error{ErrorCode::kInvalidArgument, "--prompt-cache-dir needs a prompt cache, but --prompt-cache-gib is 0", "prompt-cache-dir"};
  prompt_cache::DiskOptions disk;
  disk.folder = options.prompt_cache_dir;
  disk.limit_bytes = options.prompt_cache_disk_bytes;
  disk.identity = [this] { return prompt_cache::identity_lines(options.folder, info.isa, store->backend.layout(), options.threads); };
  return prompt_cache::DiskTier::open(std::move(disk), *store);
}

// Bytes one stream of this many tokens holds at its end.
std::size_t Engine::Impl::request_bytes(std::int64_t tokens) const {
  return model->backend().layout().sequence_bytes(tokens);
}

Status Engine::Impl::check(const Request& request) const {
  const std::int64_t prompt = std::int64_t(request.prompt_ids.size());
  if (prompt == 0) return Error{ErrorCode::kInvalidArgument, "the prompt has no tokens", "prompt"};
  if (request.max_tokens < 1) return Error{ErrorCode::kInvalidArgument, fmt::format("max_tokens {} is below 1", request.max_tokens), "max_tokens"};
  for (std::int32_t id : request.prompt_ids)
    if (id < 0 || id > info.tokenizer->largest_id())
      return Error{ErrorCode::kInvalidArgument, fmt::format("token id {} is not in [0, {}]", id, info.tokenizer->largest_id()), "prompt"};
  if (prompt + request.max_tokens > info.context)
    return Error{ErrorCode::kContextLengthExceeded,
                 fmt::format("the prompt has {} tokens and max_tokens is {}, together above the context of {}", prompt, request.max_tokens, info.context),
                 "prompt"};
  return {};
}

EventSink Engine::Impl::counted(std::uint64_t handle, int choices, EventSink sink) {
  return [this, handle, left = choices, sink = std::move(sink)](Event&& event) mutable {
    const bool last = event.finish && --left == 0;
    if (last) {
      std::lock_guard lock(mutex);
      ids.erase(handle);
    }
    sink(std::move(event));
  };
}

// Moves what other threads left for this one; false when the engine stops. Waits while there is nothing to do.
bool Engine::Impl::take_inbox() {
  std::deque<Submission> taken;
  std::vector<std::uint64_t> ended;
  {
    std::unique_lock lock(mutex);
    published = scheduler->stats();
    wake.wait(lock, [&] { return stopping || !submissions.empty() || !cancels.empty() || !scheduler->idle(); });
    taken.swap(submissions);
    ended.swap(cancels);
    if (stopping)
      for (const auto& [handle, id] : ids) ended.push_back(handle);
  }
  for (Submission& s : taken) {
    const int choices = s.request.choices;
    scheduler->add(s.handle, std::move(s.request), counted(s.handle, choices, std::move(s.sink)));
  }
  for (std::uint64_t handle : ended) scheduler->cancel(handle);
  std::lock_guard lock(mutex);
  return !stopping || !scheduler->idle();
}

void Engine::Impl::run() {
  kernels::cpu::flush_denormals();
  while (take_inbox())
    if (!scheduler->idle()) scheduler->step();
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& given) {
  EngineOptions options = given;
  if (options.threads <= 0) options.threads = usable_cores();
  if (options.parallel < 0) options.parallel = 1;
  auto impl = std::make_unique<Impl>(options, options.memory_bytes ? options.memory_bytes : available_memory_bytes());
  LOCKSTEP_TRY(impl->load());
  impl->thread = std::thread([p = impl.get()] { p->run(); });
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::~Engine() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->wake.notify_all();
  impl_->thread.join();
}

const ModelInfo& Engine::info() const { return impl_->info; }

Result<std::uint64_t> Engine::submit(Request request, EventSink sink) {
  LOCKSTEP_TRY(impl_->check(request));
  std::lock_guard lock(impl_->mutex);
  if (impl_->stopping) return Error{ErrorCode::kOverloaded, "the engine is stopping", ""};
  if (impl_->ids.size() >= impl_->options.max_queue + std::size_t(impl_->options.parallel))
    return Error{ErrorCode::kOverloaded, fmt::format("{} requests are live and {} may wait; try again later", impl_->ids.size(), impl_->options.max_queue), ""};
  const std::uint64_t handle = impl_->next_handle++;
  impl_->ids.emplace(handle, request.id);
  impl_->submissions.push_back({handle, std::move(request), std::move(sink)});
  impl_->wake.notify_all();
  return handle;
}

void Engine::cancel(std::uint64_t handle) {
  std::lock_guard lock(impl_->mutex);
  if (!impl_->ids.contains(handle)) return;
  impl_->cancels.push_back(handle);
  impl_->wake.notify_all();
}

std::vector<std::uint64_t> Engine::live(const std::string& request_id) const {
  std::lock_guard lock(impl_->mutex);
  std::vector<std::uint64_t> handles;
  for (const auto& [handle, id] : impl_->ids)
    if (id == request_id) handles.push_back(handle);
  return handles;
}

EngineStats Engine::stats() const {
  std::lock_guard lock(impl_->mutex);
  EngineStats s;
  static_cast<lanes::SchedulerStats&>(s) = impl_->published;
  s.queued += std::int64_t(impl_->submissions.size());
  s.memory = impl_->ledger.view();
  return s;
}

}  // namespace lockstep::engine
