#include "server/http/reply_inbox.h"

#include <boost/asio/post.hpp>

namespace lockstep::server::http {

void LiveCount::begin() {
  const std::lock_guard lock(mutex_);
  ++count_;
}
void LiveCount::end() {
  const std::lock_guard lock(mutex_);
  --count_;
  changed_.notify_all();
}
int LiveCount::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}
bool LiveCount::wait_for_none(std::chrono::steady_clock::time_point until) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, until, [&] { return count_ == 0; });
}

ReplyInbox::ReplyInbox(boost::asio::any_io_executor io, std::shared_ptr<LiveCount> live, int choices, std::function<void()> wake)
    : io_(std::move(io)), live_(std::move(live)), wake_(std::move(wake)), unfinished_(choices) {}

engine::EventSink ReplyInbox::sink() {
  return [self = shared_from_this()](engine::Event&& event) { self->push(std::move(event)); };
}

void ReplyInbox::push(engine::Event&& event) {
  const bool last = event.finish && --unfinished_ == 0;
  const std::size_t bytes = sizeof event + event.reasoning.size() + event.content.size() + event.token_ids.size() * sizeof(std::int32_t);
  bool post = false;
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    waiting_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    post = !wake_posted_;
    wake_posted_ = true;
  }
  if (post) {
    boost::asio::post(io_, [self = shared_from_this()] {
      {
        const std::lock_guard lock(self->mutex_);
        self->wake_posted_ = false;
      }
      if (self->wake_) self->wake_();
    });
  }
  if (last) live_->end();  // last: a server that waits for it may be gone after this
}

std::vector<engine::Event> ReplyInbox::take() {
  const std::lock_guard lock(mutex_);
  waiting_bytes_.store(0, std::memory_order_relaxed);
  return std::exchange(events_, {});
}

}  // namespace lockstep::server::http
