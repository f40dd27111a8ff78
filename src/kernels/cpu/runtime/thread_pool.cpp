#include "kernels/cpu/runtime/thread_pool.h"

#include <immintrin.h>

namespace lockstep::kernels::cpu {
namespace {
// A worker spins this long for its next job, then sleeps in the kernel: within a forward jobs follow in microseconds, between
// requests a core must be free. The caller yields while it waits, so that a third process cannot stall a barrier for a time slice.
constexpr int kSpins = 20000, kSpinsBeforeYield = 4000;
}  // namespace

void flush_denormals() { _mm_setcsr(_mm_getcsr() | 0x8040); }

ThreadPool::ThreadPool(int threads) : threads_(threads < 1 ? 1 : threads) {
  for (int t = 1; t < threads_; t++) workers_.emplace_back([this, t] { work(t); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_seq_cst);
  generation_.notify_all();
  for (auto& w : workers_) w.join();
}

void ThreadPool::start(Job job, void* context) {
  job_ = job;
  context_ = context;
  left_.store(threads_ - 1, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_seq_cst) > 0) generation_.notify_all();
  job(context, 0);
  for (int spins = 0; left_.load(std::memory_order_acquire) != 0; spins++) {
    if (spins < kSpinsBeforeYield) _mm_pause();
    else std::this_thread::yield();
  }
}

void ThreadPool::work(int thread) {
  flush_denormals();
  std::uint32_t seen = 0;
  for (;;) {
    int spins = 0;
    while (generation_.load(std::memory_order_acquire) == seen) {
      if (++spins < kSpins) {
        _mm_pause();
      } else {
        sleeping_.fetch_add(1, std::memory_order_seq_cst);
        generation_.wait(seen, std::memory_order_seq_cst);
        sleeping_.fetch_sub(1, std::memory_order_relaxed);
      }
    }
    seen++;
    if (stop_.load(std::memory_order_relaxed)) return;
    job_(context_, thread);
    left_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace lockstep::kernels::cpu
