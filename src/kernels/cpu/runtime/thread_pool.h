// One persistent pool of threads. A job is a plain function on a context, so that starting one allocates nothing.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace lockstep::kernels::cpu {

/// Flush denormals to zero, as inputs and results (EXACTNESS item 7), on the calling thread.
void flush_denormals();

class ThreadPool {
 public:
  /// `threads` includes the caller of run(). Every thread flushes denormals; the caller must too (flush_denormals()).
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  int size() const { return threads_; }

  /// f(thread) on every thread, thread 0 being the caller; returns when all are done. One job at a time; f must not call run.
  template <class F>
  void run(F&& f) {
    start([](void* context, int thread) { (*static_cast<std::remove_reference_t<F>*>(context))(thread); }, &f);
  }

  /// f(begin, end, thread) over [0, n) in pieces of `grain`, taken as threads come free. Which thread takes a piece never touches bits.
  template <class F>
  void parallel_for(std::int64_t n, std::int64_t grain, F&& f) {
    if (n <= 0) return;
    if (n <= grain || threads_ == 1) {
      f(std::int64_t(0), n, 0);
      return;
    }
    std::atomic<std::int64_t> next{0};
    run([&](int thread) {
      for (;;) {
        const std::int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
        if (begin >= n) break;
        f(begin, begin + grain < n ? begin + grain : n, thread);
      }
    });
  }

 private:
  using Job = void (*)(void*, int);
  void start(Job job, void* context);
  void work(int thread);

  int threads_;
  std::vector<std::thread> workers_;
  alignas(64) std::atomic<std::uint32_t> generation_{0};
  alignas(64) std::atomic<int> left_{0};
  std::atomic<int> sleeping_{0};
  Job job_ = nullptr;
  void* context_ = nullptr;
  std::atomic<bool> stop_{false};
};

}  // namespace lockstep::kernels::cpu
