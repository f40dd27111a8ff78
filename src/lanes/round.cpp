// One round: every running lane's pending rows (one token each for those that decode, a chunk of prompt for those that fill) in one forward.
#include <fmt/format.h>

#include <algorithm>

#include "base/sha256.h"
#include "lanes/scheduler.h"

namespace lockstep::lanes {
namespace {

constexpr double kRoundMsAlone = 1000, kRoundMsShared = 250;  // what a round with a chunk should take: without and with lanes that decode
constexpr int kLeastChunk = 16, kChunkStep = 8;               // rows
constexpr double kNewestPrice = 0.3;                          // weight of the last measurement in a price

double milliseconds(Clock::time_point from, Clock::time_point to) { return std::chrono::duration<double, std::milli>(to - from).count(); }

double average(double old, double newest) { return old > 0 ? (1 - kNewestPrice) * old + kNewestPrice * newest : newest; }

}  // namespace

// Decoding lanes always take part; what is left of the round's time goes to filling lanes in their order, each cut at its next resume point.
void Scheduler::plan() {
  round_.clear();
  std::vector<Lane*> lanes;
  for (auto& lane : running_) lanes.push_back(lane.get());
  for (Lane* lane : lanes) {
    if (!lane->state || lane->pending() != 1) continue;
    const std::int64_t left = lane->request().max_tokens - lane->reply_length();
    if (!lane->state->prepared(1) && !reserve(*lane, std::min(kReplyStep, left))) {
      stop(*lane);  // nothing newer is left to stop
      continue;
    }
    round_.push_back({lane, 1, true});
  }
  std::int64_t room = store_.backend.max_rows() - options_.parallel;
  double ms = round_.empty() ? kRoundMsAlone : std::max(kRoundMsShared - decode_ms_, decode_ms_ / 2);  // no sliver beside a slow decode
  bool first = true;
  for (Lane* lane : lanes) {
    if (!lane->state || lane->pending() == 1) continue;
    const std::int64_t priced = rows_within(ms, lane->state->length());
    std::int64_t rows = std::min({lane->pending(), room, first ? std::max<std::int64_t>(priced, kLeastChunk) : priced});
    if (rows <= 0) break;
    if (!lane->resume_points.empty()) rows = std::min(rows, lane->resume_points.front() - lane->state->length());
    if (!lane->state->prepared(rows) && !reserve(*lane, rows)) {
      stop(*lane);
      continue;
    }
    first = false;
    room -= rows;
    ms -= operation_ms_ * double(rows) * model_.row_operations(double(lane->state->length()));
    round_.push_back({lane, int(rows), rows == lane->pending()});
  }
  // A reservation may have stopped a lane that was planned before: stop() took its row out.
}

// Rows from `position` on that fit the time at the measured price; before the first measurement none.
int Scheduler::rows_within(double milliseconds, std::int64_t position) const {
  if (operation_ms_ <= 0 || milliseconds <= 0) return 0;
  const double rows = milliseconds / (operation_ms_ * model_.row_operations(double(position)));
  return int(std::min(rows, double(store_.backend.max_rows()))) / kChunkStep * kChunkStep;
}

void Scheduler::forward() {
  segments_.clear();
  for (const Row& row : round_) {
    const Lane& lane = *row.lane;
    segments_.push_back({lane.state.get(), std::span(lane.tokens).subspan(std::size_t(lane.state->length()), std::size_t(row.rows)), row.rows,
                         row.draws ? models::Segment::Logits::kLast : models::Segment::Logits::kNone});
  }
  const auto begin = Clock::now();
  model_.forward(segments_);
  observe(milliseconds(begin, Clock::now()));
}

void Scheduler::observe(double ms) {
  std::int64_t rows = 0, fill = 0;
  double operations = 0;  // of filled rows
  for (const Row& row : round_) {
    row.lane->forward_ms += ms;
    rows += row.rows;
    if (row.rows == 1) continue;
    fill += row.rows;
    operations += row.rows * model_.row_operations(double(row.lane->state->length()) - row.rows / 2.0);
  }
  double fill_ms = ms;
  if (fill == 0) {
    decode_ms_ = average(decode_ms_, ms);
  } else if (rows > fill) {
    decode_ms_ = std::min(decode_ms_, ms);  // lanes end, and for long there may be no round without a chunk
    fill_ms = std::max(ms - decode_ms_, ms / 16);
  }
  if (fill >= kLeastChunk || (fill > 0 && operation_ms_ <= 0)) operation_ms_ = average(operation_ms_, fill_ms / operations);
  stats_.rounds++;
  if (round_.size() > 1) stats_.shared_rounds++;
  stats_.rows += rows;
  stats_.decode_rows += rows - fill;
  stats_.widest_round = std::max(stats_.widest_round, std::int64_t(round_.size()));
  stats_.forward_seconds += ms / 1000;
}

void Scheduler::draw() {
  std::vector<const Row*> drawing;
  for (const Row& row : round_)
    if (row.draws) drawing.push_back(&row);
  drawn_.assign(drawing.size(), -1);
  const auto flags = model_.row_flags();
  std::vector<bool> flagged;
  int first = 0;
  for (const Row& row : round_) {
    if (row.draws) flagged.push_back(flags[std::size_t(first + row.rows - 1)] != 0);
    first += row.rows;
  }
  store_.backend.parallel(int(drawing.size()), [&](int i, int thread) {
    if (flagged[std::size_t(i)]) return;  // nothing is drawn from a flagged row
    const Lane& lane = *drawing[std::size_t(i)]->lane;
    sampling::SamplingParams params = lane.request().sampling;
    params.seed = lane.seed;
    drawn_[std::size_t(i)] = samplers_[std::size_t(thread)]->draw(model_.logits(i).first(std::size_t(options_.vocabulary)), params,
                                                                  lane.tokens.size(), lane.tokens);
  });
}

void Scheduler::accept() {
  const auto flags = model_.row_flags();
  std::size_t first = 0, draw = 0;
  for (Row& row : round_) {
    const auto rows = flags.subspan(first, std::size_t(row.rows));
    first += std::size_t(row.rows);
    const std::int32_t token = row.draws ? drawn_[draw++] : -1;
    if (const auto bad = std::find(rows.begin(), rows.end(), 1); bad != rows.end()) {
      const std::int64_t position = row.lane->state->length() - row.rows + (bad - rows.begin());
      row.lane->state.reset();  // no state that holds such a row is kept or shared
      stats_.failed++;
      finish(*row.lane, FinishReason::kError, {},
             {ErrorCode::kNotFinite, fmt::format("a value computed for position {} is not finite; the reply cannot go on", position), ""});
    } else if (row.draws) {
      accept_token(*row.lane, token);
    }
  }
}

void Scheduler::accept_token(Lane& lane, std::int32_t token) {
  if (lane.reply_length() == 0) lane.first_token = Clock::now();
  lane.tokens.push_back(token);
  stats_.generated_tokens++;
  Event event;
  event.choice = lane.choice;
  event.token_ids = {token};
  const Request& request = lane.request();
  const bool ends = !request.ignore_eos && std::find(options_.stop_ids.begin(), options_.stop_ids.end(), token) != options_.stop_ids.end();
  text::ReplyText::Delta delta = ends ? lane.text.finish() : lane.text.push(token);
  const bool full = lane.reply_length() >= request.max_tokens;
  event.reasoning = std::move(delta.reasoning);
  event.content = std::move(delta.content);
  if (!ends && !delta.stopped && !full) return lane.group->sink(std::move(event));
  if (!ends && !delta.stopped) {
    text::ReplyText::Delta rest = lane.text.finish();
    event.reasoning += rest.reasoning;
    event.content += rest.content;
  }
  event.finish.emplace();
  event.finish->stop = std::move(delta.stop);
  finish(lane, ends || delta.stopped ? FinishReason::kStop : FinishReason::kLength, std::move(event));
}

// The last event of a choice. The row of a reply's last token never stands, so the state it leaves ends one row before it.
void Scheduler::finish(Lane& lane, FinishReason reason, Event event, Error error) {
  const auto now = Clock::now();
  if (!event.finish) {
    event.choice = lane.choice;
    event.finish.emplace();
    text::ReplyText::Delta rest = lane.text.finish();
    event.reasoning = std::move(rest.reasoning);
    event.content = std::move(rest.content);
  }
  Finish& f = *event.finish;
  f.reason = reason;
  f.error = std::move(error);
  f.seed = lane.seed;
  f.usage = {lane.prompt_length(), lane.cached_tokens, lane.reply_length()};
  f.token_sha256 = token_sha256(lane.reply());
  const auto start = lane.started ? lane.start : now, first = lane.reply_length() ? lane.first_token : now;
  f.timings = {milliseconds(lane.submitted, start), milliseconds(start, first), milliseconds(first, now), lane.forward_ms};
  lane.group->sink(std::move(event));
  if (lane.state && (reason == FinishReason::kStop || reason == FinishReason::kLength)) keep_state(lane);
  lane.state.reset();
  for (Lanes* lanes : {&queue_, &running_})
    for (auto& owner : *lanes)
      if (owner.get() == &lane) ended_.push_back(std::move(owner));
}

// States at resume points, for later requests and for those that wait for this prefix now.
void Scheduler::keep() {
  for (const Row& row : round_) {
    Lane& lane = *row.lane;
    if (!lane.state) continue;
    if (lane.resume_points.empty() || lane.resume_points.front() != lane.state->length()) continue;
    lane.resume_points.erase(lane.resume_points.begin());
    keep_state(lane);
  }
}

}  // namespace lockstep::lanes
