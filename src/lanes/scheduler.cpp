#include "lanes/scheduler.h"

#include <algorithm>

namespace lockstep::lanes {
namespace {

constexpr std::int64_t kResumeSpacing = 2048;   // kept states in long prompts, in tokens (docs/prompt_cache.md)
constexpr std::int64_t kShortestShared = 32;    // a prefix worth waiting for
constexpr std::uint64_t kAfterAllNormal = std::uint64_t(1) << 62;

void add_point(std::vector<std::int64_t>& points, std::int64_t p) {
  const auto at = std::lower_bound(points.begin(), points.end(), p);
  if (at == points.end() || *at != p) points.insert(at, p);
}

}  // namespace

Scheduler::Scheduler(models::Model& model, state::Store& store, SchedulerOptions options, std::unique_ptr<prompt_cache::DiskTier> disk)
    : model_(model), store_(store), options_(std::move(options)),
      cache_(options_.prompt_cache_bytes, store.backend.layout().page_bytes, store.backend.layout().recurrent_bytes == 0,
             std::move(disk)) {
  for (int i = 0; i < store.backend.threads(); i++) samplers_.push_back(std::make_unique<sampling::Sampler>(options_.vocabulary));
  round_.reserve(std::size_t(options_.parallel));
}

void Scheduler::add(std::uint64_t handle, Request request, EventSink sink) {
  auto group = std::make_shared<Group>();
  group->request = std::move(request);
  group->sink = std::move(sink);
  group->handle = handle;
  group->order = ++order_ | (group->request.priority == Priority::kBackground ? kAfterAllNormal : 0);
  group->to_start = group->request.choices;
  stats_.requests++;
  for (int i = 0; i < group->request.choices; i++) {
    auto lane = std::make_unique<Lane>(group, i, text::ReplyText(options_.tokenizer, group->request.text));
    set_resume_points(*lane);
    queue_.insert(place(queue_, *lane), std::move(lane));
  }
}

// Where a prompt's state is kept: the points its maker named, every kResumeSpacing tokens, and one row before the end for a prompt without
// named points or with several choices.
void Scheduler::set_resume_points(Lane& lane) {
  const Request& request = lane.request();
  const std::int64_t n = lane.prompt_length();
  if (cache_.enabled()) {
    for (std::int64_t p : request.resume_points)
      if (p > 0 && p < n) add_point(lane.resume_points, p);
    for (std::int64_t p = kResumeSpacing; p < n; p += kResumeSpacing) add_point(lane.resume_points, p);
  }
  if (n > 1 && (request.choices > 1 || (cache_.enabled() && request.resume_points.empty()))) add_point(lane.resume_points, n - 1);
}

bool Scheduler::cancel(std::uint64_t handle) {
  bool found = false;
  for (Lanes* lanes : {&queue_, &running_})
    for (auto& lane : *lanes)
      if (lane->group->handle == handle) lane->cancelled = found = true;
  return found;
}

void Scheduler::step() {
  admit();
  if (running_.empty()) return;
  plan();
  if (round_.empty()) return;
  forward();
  draw();
  accept();
  keep();
  remove_ended();
}

// Where a lane belongs: behind those of its own order and before it.
Scheduler::Lanes::iterator Scheduler::place(Lanes& lanes, const Lane& lane) {
  return std::find_if(lanes.begin(), lanes.end(), [&](const auto& other) { return other->group->order > lane.group->order; });
}

// Cancelled lanes leave; then queued lanes start in order while there is a free lane. A normal request takes the lane and the memory of
// background ones, the newest first.
void Scheduler::admit() {
  for (Lanes* lanes : {&running_, &queue_})
    for (auto& lane : *lanes)
      if (lane->cancelled) leave(*lane);
  remove_ended();
  for (auto it = queue_.begin(); it != queue_.end();) {
    const auto here = it++;  // a lane that is stopped goes into the queue; iterators of a list stay valid
    Lane& lane = **here;
    const bool full = int(running_.size()) >= options_.parallel;
    if (full && !background_beside(lane)) return;
    const std::int64_t cached = cache_.longest(lane.request().cache_salt, lane.tokens, std::int64_t(lane.tokens.size()) - 1);
    if (waits(lane, cached)) continue;
    if (full) stop(*background_beside(lane));
    while (!start(lane, cached)) {
      if (Lane* background = background_beside(lane)) {
        stop(*background);
        continue;
      }
      if (running_.empty() && !store_.ledger.fits(bytes_to_start(lane))) {
        // Alone, with nothing left to shed, and still no room: it never fits.
        finish(lane, FinishReason::kError, {}, {ErrorCode::kDoesNotFit, "the request does not fit the memory budget", "memory"});
        remove_ended();
      }
      return;  // no memory: those behind do not overtake
    }
    running_.splice(place(running_, lane), queue_, here);
  }
}

/// The newest running background lane if `lane` is a normal one, else nullptr.
Lane* Scheduler::background_beside(const Lane& lane) {
  const bool yields = !running_.empty() && running_.back()->request().priority == Priority::kBackground;
  return yields && lane.request().priority == Priority::kNormal ? running_.back().get() : nullptr;
}

// True where a running lane will pass through a longer shared prefix than any kept state has: that point becomes a resume point of it.
bool Scheduler::waits(const Lane& lane, std::int64_t cached) {
  const std::int64_t limit = std::int64_t(lane.tokens.size()) - 1;
  for (auto& other : running_) {
    const bool sibling = other->group == lane.group;
    if (sibling ? lane.group->prompt != nullptr : !cache_.enabled() || other->request().cache_salt != lane.request().cache_salt) continue;
    const std::int64_t shared = std::min(limit, prompt_cache::common_prefix(other->tokens, lane.tokens));
    if (shared - cached < (sibling ? 1 : kShortestShared) || other->state->length() >= shared) continue;
    add_point(other->resume_points, shared);
    return true;
  }
  return false;
}

std::size_t Scheduler::bytes_to_start(const Lane& lane) const {
  const std::int64_t reply = std::min(kReplyStep, lane.request().max_tokens - lane.reply_length());
  return store_.backend.layout().sequence_bytes(std::int64_t(lane.tokens.size()) + reply);
}

bool Scheduler::start(Lane& lane, std::int64_t cached) {
  // No kept state is dropped for a lane that would not fit even then: it waits for the end of another.
  const kernels::StateLayout& layout = store_.backend.layout();
  const std::size_t shared = layout.page_tokens ? std::size_t(cached / layout.page_tokens) * layout.page_bytes : 0;
  const std::size_t whole = bytes_to_start(lane), needed = whole - std::min(whole, shared);
  if (!running_.empty() && !store_.ledger.fits(needed)) {
    const std::size_t evictable = cache_.evictable_bytes();
    if (needed > evictable && !store_.ledger.fits(needed - evictable)) return false;
  }
  // The state it resumes from is held until it is restored: what is evicted for the lane is another.
  prompt_cache::PromptCache::Hit hit;
  if (lane.group->prompt && lane.choice > 0) hit = {lane.group->prompt, lane.group->prompt->length};
  else hit = cache_.find(lane.request().cache_salt, lane.tokens, std::int64_t(lane.tokens.size()) - 1, whole);
  auto created = state::SequenceState::create(store_);
  while (!created.ok()) {
    if (!shed_to_start()) {
      if (!hit.state) return false;
      hit = {};
    }
    created = state::SequenceState::create(store_);
  }
  lane.state = std::move(created).value();
  const std::int64_t resumed = hit.length;
  if (resumed > 0) lane.state->restore(*hit.state, resumed);
  const bool is_prompt = resumed > 0 && resumed == lane.prompt_length() - 1 && hit.state->length == resumed;
  if (is_prompt && lane.group->to_start > 1) lane.group->prompt = hit.state;
  hit = {};
  const std::int64_t left = lane.request().max_tokens - lane.reply_length();
  while (!lane.state->prepare(lane.pending() + std::min(kReplyStep, left)).ok())
    if (!shed_to_start()) {
      lane.state.reset();
      return false;
    }
  std::erase_if(lane.resume_points, [&](std::int64_t p) { return p <= resumed; });
  if (!lane.started) {
    lane.started = true;
    lane.start = Clock::now();
    lane.cached_tokens = resumed;
    stats_.prompt_tokens += lane.prompt_length();
    stats_.cached_tokens += resumed;
    if (--lane.group->to_start == 0) lane.group->prompt.reset();
  } else {
    stats_.recomputed++;
  }
  return true;
}

// A lane that leaves before its time. Where others wait, perhaps for its prefix, what it has is kept for them.
void Scheduler::leave(Lane& lane) {
  if (lane.state && lane.state->length() > 0 && lane.state->length() < lane.prompt_length() && !queue_.empty()) keep_state(lane);
  stats_.cancelled++;
  finish(lane, FinishReason::kCancelled, {}, {ErrorCode::kCancelled, "the request was cancelled", ""});
}

// Frees something for a lane that starts: a kept state, then, where nothing runs, a prompt that is held for choices.
bool Scheduler::shed_to_start() { return cache_.evict_one() || (running_.empty() && drop_prompt(0)); }

// Pages for `rows` more rows of a running lane: kept states go first, then the newest running lanes, then prompts held for choices as new.
bool Scheduler::reserve(Lane& lane, std::int64_t rows) {
  while (!lane.state->prepare(rows).ok()) {
    if (cache_.evict_one()) continue;
    if (Lane* newest = newest_running(&lane)) stop(*newest);
    else if (!drop_prompt(lane.group->order)) return false;
  }
  return true;
}

// Lets go of the prompt that is held for the newest waiting choices, if they are not before `order`: the next of them computes it again.
bool Scheduler::drop_prompt(std::uint64_t order) {
  for (auto it = queue_.rbegin(); it != queue_.rend(); ++it) {
    if (!*it || !(*it)->group->prompt || (*it)->group->order < order) continue;
    (*it)->group->prompt.reset();
    return true;
  }
  return false;
}

Lane* Scheduler::newest_running(const Lane* but) {
  for (auto it = running_.rbegin(); it != running_.rend(); ++it)
    if (it->get() != but && (*it)->state && (*it)->group->order >= but->group->order) return it->get();
  return nullptr;
}

// Its bytes are freed, its tokens stay; it starts again from the front of the queue's order, unseen by its client.
void Scheduler::stop(Lane& lane) {
  lane.state.reset();
  stats_.stopped++;
  std::erase_if(round_, [&](const Row& row) { return row.lane == &lane; });
  const auto it = std::find_if(running_.begin(), running_.end(), [&](const auto& other) { return other.get() == &lane; });
  queue_.splice(place(queue_, lane), running_, it);
}

std::shared_ptr<const state::Snapshot> Scheduler::save(Lane& lane) {
  auto kept = lane.state->save();
  while (!kept.ok() && cache_.evict_one()) kept = lane.state->save();
  return kept.ok() ? std::move(kept).value() : nullptr;  // no room: the state is simply not kept
}

void Scheduler::keep_state(Lane& lane) {
  const auto tokens = std::span(lane.tokens).first(std::size_t(lane.state->length()));
  const bool for_choices = lane.group->to_start > 0 && lane.state->length() == lane.prompt_length() - 1;
  if (!for_choices && (!cache_.enabled() || cache_.contains(lane.request().cache_salt, tokens))) return;
  const auto kept = save(lane);
  if (!kept) return;
  if (for_choices) lane.group->prompt = kept;
  cache_.insert(lane.request().cache_salt, tokens, kept);
}

void Scheduler::remove_ended() {
  for (Lanes* lanes : {&queue_, &running_}) std::erase_if(*lanes, [](const auto& lane) { return lane == nullptr; });
  ended_.clear();
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats s = stats_;
  s.queued = std::int64_t(queue_.size());
  for (const auto& lane : running_) (lane->pending() > 1 ? s.filling : s.decoding)++;
  s.cache = cache_.stats();
  return s;
}

}  // namespace lockstep::lanes
