// Events of one reply on their way from the engine thread to its connection.
#pragma once
#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <condition_variable>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/request.h"

namespace lockstep::server::http {

/// Replies the engine still owes a finish, or connections that are open; a server waits for zero before it goes. Thread-safe.
class LiveCount {
 public:
  void begin();
  void end();
  int count() const;
  /// False when `until` came first.
  bool wait_for_none(std::chrono::steady_clock::time_point until);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

class ReplyInbox : public std::enable_shared_from_this<ReplyInbox> {
 public:
  /// `wake` runs on `io` after events arrived, once for any number of them, until detach(). `live` is told when the last of the
  /// request's choices finished.
  ReplyInbox(boost::asio::any_io_executor io, std::shared_ptr<LiveCount> live, int choices, std::function<void()> wake);

  /// The engine's sink: never blocks longer than a push to a vector. Keeps this object alive until the engine drops it.
  engine::EventSink sink();

  /// What came since the last call, in order (io thread).
  std::vector<engine::Event> take();
  /// Bytes that wait to be taken.
  std::size_t waiting_bytes() const { return waiting_bytes_.load(std::memory_order_relaxed); }
  /// No more wake calls (io thread).
  void detach() { wake_ = nullptr; }

 private:
  void push(engine::Event&& event);

  boost::asio::any_io_executor io_;
  std::shared_ptr<LiveCount> live_;
  std::function<void()> wake_;  // io thread only
  int unfinished_;              // engine thread only
  std::mutex mutex_;
  std::vector<engine::Event> events_;  // guarded
  bool wake_posted_ = false;           // guarded
  std::atomic<std::size_t> waiting_bytes_{0};
};

}  // namespace lockstep::server::http
