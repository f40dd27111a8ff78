#include "server/scripted_engine.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>

#include "base/sha256.h"

namespace lockstep::engine {
namespace {

using Clock = std::chrono::steady_clock;

struct Job {
  std::uint64_t handle = 0;
  Request request;
  EventSink sink;
  bool cancelled = false;
  Clock::time_point submitted = Clock::now();
};

std::string word_of(const std::string& prompt, const std::string& name) {
  const auto at = prompt.rfind(name + '=');
  if (at == std::string::npos) return {};
  const auto from = at + name.size() + 1;
  return prompt.substr(from, prompt.find_first_of(" \n<", from) - from);
}
long number_of(const std::string& prompt, const std::string& name, long fallback) {
  const std::string word = word_of(prompt, name);
  return word.empty() ? fallback : std::atol(word.c_str());
}

// The layer that has the real one is not linked here.
std::uint64_t scripted_choice_seed(std::uint64_t seed, int choice) { return seed + static_cast<std::uint64_t>(choice); }

}  // namespace

struct Engine::Impl {
  ModelInfo info;
  std::size_t max_queue = 0;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Job>> queue;
  std::shared_ptr<Job> running;
  bool decoding = false, stopping = false;
  std::uint64_t next_handle = 1;
  EngineStats totals;
  std::thread thread;

  void loop();
  void run(Job& job, int choice);
  bool wait(const Job& job, long ms);  // false: cancelled
  Finish finish(const Job& job, FinishReason reason, const std::vector<std::int32_t>& ids) const;
  void give(Job& job, Event&& event) { job.sink(std::move(event)); }
  void give_cancelled(Job& job) {
    for (int choice = 0; choice < job.request.choices; ++choice) {
      Event event;
      event.choice = choice;
      event.finish = finish(job, FinishReason::kCancelled, {});
      job.sink(std::move(event));
    }
  }
};

bool Engine::Impl::wait(const Job& job, long ms) {
  std::unique_lock lock(mutex);
  return !changed.wait_for(lock, std::chrono::milliseconds(ms), [&] { return job.cancelled; });
}

Finish Engine::Impl::finish(const Job& job, FinishReason reason, const std::vector<std::int32_t>& ids) const {
  Finish out;
  out.reason = reason;
  out.usage = {static_cast<std::int64_t>(job.request.prompt_ids.size()), 0, static_cast<std::int64_t>(ids.size())};
  out.token_sha256 = token_sha256(ids);
  out.timings.decode_ms = std::chrono::duration<double, std::milli>(Clock::now() - job.submitted).count();
  return out;
}

void Engine::Impl::loop() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return stopping || !queue.empty(); });
    if (queue.empty()) return;
    running = queue.front();
    queue.pop_front();
    decoding = false;
    const auto job = running;
    lock.unlock();
    for (int choice = 0; choice < job->request.choices; ++choice) run(*job, choice);
    lock.lock();
  }
}

void Engine::Impl::run(Job& job, int choice) {
  const Request& r = job.request;
  const std::string prompt = info.tokenizer->decode(r.prompt_ids, false);
  std::string say = word_of(prompt, "say");
  std::replace(say.begin(), say.end(), '_', ' ');
  if (say.empty()) say = "The quick brown fox says: Gr\xC3\xB6\xC3\x9F" "e, \xE4\xBD\xA0\xE5\xA5\xBD, \xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD.";
  const long repeat = number_of(prompt, "repeat", 1), fill = number_of(prompt, "fill", 0), delay = number_of(prompt, "delay", 0);
  const long fail = number_of(prompt, "fail", -1);

  std::vector<std::int32_t> script;
  const auto append = [&](const std::string& text) {
    const auto ids = *info.tokenizer->encode(text, false);
    script.insert(script.end(), ids.begin(), ids.end());
  };
  if (r.text.starts_in_reasoning) {
    append("A thought about it.\n");
    script.push_back(*info.think_end);
    append("\n\n");
  }
  for (long i = 0; i < repeat; ++i) append(say);
  script.push_back(info.stop_ids.front());

  text::ReplyText text(info.tokenizer, r.text);
  std::vector<std::int32_t> ids;
  const auto end = [&](Event&& event, FinishReason reason, Error error = {}, std::string stop = {}) {
    event.choice = choice;
    event.finish = finish(job, reason, ids);
    event.finish->seed = scripted_choice_seed(r.sampling.seed, choice);
    event.finish->error = std::move(error);
    event.finish->stop = std::move(stop);
    {
      const std::lock_guard lock(mutex);
      totals.generated_tokens += static_cast<std::int64_t>(ids.size());
      if (choice + 1 == r.choices) running.reset();
    }
    give(job, std::move(event));
  };

  if (!wait(job, fill)) return end({}, FinishReason::kCancelled);
  {
    const std::lock_guard lock(mutex);
    decoding = true;
  }
  for (std::size_t i = 0;; ++i) {
    if (!wait(job, delay)) return end({}, FinishReason::kCancelled);
    if (static_cast<long>(i) == fail) return end({}, FinishReason::kError, {ErrorCode::kNotFinite, "a value that is not finite stood at position 7", ""});
    const std::int32_t id = script[std::min(i, script.size() - 1)];
    ids.push_back(id);
    const bool stop_id = id == info.stop_ids.front();
    auto delta = text.push(id);
    Event event;
    event.choice = choice;
    event.token_ids = {id};
    event.reasoning = delta.reasoning;
    event.content = delta.content;
    if (delta.stopped) return end(std::move(event), FinishReason::kStop, {}, delta.stop);
    const bool over = stop_id && !r.ignore_eos;
    if (over || static_cast<std::int64_t>(ids.size()) >= r.max_tokens) {
      const auto rest = text.finish();
      event.reasoning += rest.reasoning;
      event.content += rest.content;
      return end(std::move(event), over ? FinishReason::kStop : FinishReason::kLength);
    }
    give(job, std::move(event));
  }
}

std::unique_ptr<Engine> ScriptedEngine::create(const std::filesystem::path& folder, std::int64_t context, std::size_t max_queue) {
  EngineOptions options;
  options.folder = folder;
  options.context = context;
  options.max_queue = max_queue;
  auto engine = Engine::create(options);
  if (!engine.ok()) {
    std::fprintf(stderr, "%s\n", engine.error().message.c_str());
    std::abort();
  }
  return std::move(*engine);
}

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options) {
  auto impl = std::make_unique<Impl>();
  ModelInfo& info = impl->info;
  info.name = options.folder.filename().string();
  info.family = "scripted";
  info.context = info.model_limit = options.context > 0 ? options.context : 4096;
  LOCKSTEP_ASSIGN(info.tokenizer, text::Tokenizer::load(options.folder));
  LOCKSTEP_ASSIGN(info.chat_template, text::ChatTemplate::load(options.folder, info.tokenizer));
  info.stop_ids = {info.tokenizer->eos_id().value_or(0)};
  info.think_start = info.tokenizer->id_of("<think>");
  info.think_end = info.tokenizer->id_of("</think>");
  impl->max_queue = options.max_queue;
  impl->thread = std::thread([p = impl.get()] { p->loop(); });
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() {
  std::deque<std::shared_ptr<Job>> waiting;
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
    waiting.swap(impl_->queue);
    if (impl_->running) impl_->running->cancelled = true;
  }
  impl_->changed.notify_all();
  impl_->thread.join();
  for (auto& job : waiting) impl_->give_cancelled(*job);
}

const ModelInfo& Engine::info() const { return impl_->info; }

Result<std::uint64_t> Engine::submit(Request request, EventSink sink) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->queue.size() >= impl_->max_queue)
    return Error{ErrorCode::kOverloaded, "the queue is full: " + std::to_string(impl_->max_queue) + " requests wait", ""};
  auto job = std::make_shared<Job>();
  job->handle = impl_->next_handle++;
  job->request = std::move(request);
  job->sink = std::move(sink);
  impl_->totals.requests += 1;
  impl_->totals.prompt_tokens += static_cast<std::int64_t>(job->request.prompt_ids.size());
  impl_->queue.push_back(job);
  impl_->changed.notify_all();
  return job->handle;
}

void Engine::cancel(std::uint64_t handle) {
  std::shared_ptr<Job> waiting;
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->running && impl_->running->handle == handle) impl_->running->cancelled = true;
    for (auto it = impl_->queue.begin(); it != impl_->queue.end(); ++it) {
      if ((*it)->handle != handle) continue;
      waiting = *it;
      impl_->queue.erase(it);
      break;
    }
    impl_->changed.notify_all();
  }
  if (waiting) impl_->give_cancelled(*waiting);
}

std::vector<std::uint64_t> Engine::live(const std::string& request_id) const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<std::uint64_t> out;
  if (impl_->running && impl_->running->request.id == request_id) out.push_back(impl_->running->handle);
  for (const auto& job : impl_->queue) {
    if (job->request.id == request_id) out.push_back(job->handle);
  }
  return out;
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(impl_->mutex);
  EngineStats out = impl_->totals;
  out.queued = static_cast<std::int64_t>(impl_->queue.size());
  out.filling = impl_->running && !impl_->decoding;
  out.decoding = impl_->running && impl_->decoding;
  return out;
}

}  // namespace lockstep::engine
