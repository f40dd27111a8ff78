#include "prompt_cache/state_writer.h"

#include <algorithm>
#include <cstring>

namespace lockstep::prompt_cache {

StateWriter::StateWriter(const CacheFolder& folder, kernels::Backend& backend, WriterOptions options)
    : folder_(folder), backend_(backend), options_(std::move(options)), page_(backend.layout().page_bytes), thread_([this] { run(); }) {}

StateWriter::~StateWriter() {
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
    ended_.wait_for(lock, options_.at_end, [&] { return queue_.empty() && !writing_; });
    give_up_ = true;
    drop_queue();
  }
  thread_.join();
}

bool StateWriter::has_room(std::size_t bytes) const {
  std::lock_guard lock(mutex_);
  return queue_.empty() || (queue_.size() < options_.most_jobs && bytes <= options_.most_bytes && queued_bytes_ <= options_.most_bytes - bytes);
}

void StateWriter::push(WriteJob job) {
  std::lock_guard lock(mutex_);
  queued_bytes_ += job.bytes;
  queue_.push_back(std::move(job));
  wake_.notify_all();
}

std::vector<WriteJob> StateWriter::take_done() {
  std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

void StateWriter::drop_queue() {
  std::move(queue_.begin(), queue_.end(), std::back_inserter(done_));
  queue_.clear();
  queued_bytes_ = 0;
}

void StateWriter::forget(const state::Snapshot& snapshot) {
  std::lock_guard lock(mutex_);
  const auto it = std::find_if(queue_.begin(), queue_.end(), [&](const WriteJob& job) { return job.snapshot.get() == &snapshot; });
  if (it == queue_.end()) return;
  queued_bytes_ -= it->bytes;
  done_.push_back(std::move(*it));
  queue_.erase(it);
}

void StateWriter::give_up() {
  std::unique_lock lock(mutex_);
  drop_queue();
  give_up_ = true;
  ended_.wait(lock, [&] { return !writing_; });
  give_up_ = false;
}

void StateWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    WriteJob job = std::move(queue_.front());
    queue_.pop_front();
    queued_bytes_ -= job.bytes;
    writing_ = true;
    lock.unlock();
    job.written = write(job);
    lock.lock();
    done_.push_back(std::move(job));
    writing_ = false;
    ended_.notify_all();
  }
}

// What stands of a page. Rows past the state's end may be another stream's, and belong to nobody's prefix.
std::span<const std::byte> StateWriter::standing(const state::PageRef& page, int tokens) {
  std::fill(page_.begin(), page_.end(), std::byte{0});
  backend_.copy_page(page->data(), page_.data(), tokens);
  return page_;
}

// Pages first: a state's file says that they are there. One that is there already was written for another state with this prefix.
Status StateWriter::write(const WriteJob& job) {
  const kernels::StateLayout& layout = backend_.layout();
  const state::Snapshot& snapshot = *job.snapshot;
  const auto begin_file = [&] {
    if (options_.before_file) options_.before_file();
  };
  for (std::size_t i = 0; i < job.names.pages.size(); i++) {
    const auto path = folder_.page(job.names.pages[i]);
    std::error_code error;
    if (std::filesystem::file_size(path, error) == page_file_bytes(layout)) continue;
    begin_file();
    LOCKSTEP_TRY(write_page(path, standing(snapshot.pages[i], layout.page_tokens), give_up_));
  }
  begin_file();
  const int tail = tail_tokens(layout, snapshot.length);
  return write_state(folder_.state(job.names.state), job.key, {snapshot.recurrent.get(), snapshot.recurrent_bytes},
                     tail ? standing(snapshot.pages.back(), tail) : std::span<const std::byte>(), give_up_);
}

}  // namespace lockstep::prompt_cache
