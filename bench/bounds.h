// What this machine can do at most, and how a time is taken on a machine that others share: short samples, kept only when no thread of ours
// was preempted, median of the kept ones, bound and kernel sampled in turn so that a noisy neighbour slows both.
#pragma once
#include <immintrin.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cpu/runtime/pages.h"
#include "kernels/cpu/runtime/thread_pool.h"

namespace lockstep::bench {

inline double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

inline long preemptions() {
  rusage u;
  getrusage(RUSAGE_SELF, &u);
  return u.ru_nivcsw;
}

/// Samples of one thing, in seconds for each unit of work.
class Samples {
 public:
  /// f() does `units` of work.
  template <class F>
  void take(double units, F&& f) {
    const long before = preemptions();
    const double begin = now();
    f();
    const double seconds = (now() - begin) / units;
    (preemptions() == before ? clean_ : dirty_).push_back(seconds);
  }
  std::size_t clean() const { return clean_.size(); }
  std::size_t all() const { return clean_.size() + dirty_.size(); }
  /// Median of the clean samples; of all where too few were clean.
  double median() const {
    std::vector<double> v = clean_;
    if (v.size() < 8) v.insert(v.end(), dirty_.begin(), dirty_.end());
    if (v.empty()) return 0;
    std::nth_element(v.begin(), v.begin() + std::ptrdiff_t(v.size() / 2), v.end());
    return v[v.size() / 2];
  }

 private:
  std::vector<double> clean_, dirty_;
};

/// Runs f(turn) until `wanted` clean samples or the time is over; f takes its samples itself.
template <class F>
void sample(const Samples& of, std::size_t wanted, double seconds, F&& f) {
  const double begin = now();
  for (int turn = 0; of.clean() < wanted && (now() - begin < seconds || of.all() < 3); turn++) f(turn);
}

/// Reads a buffer larger than any cache, every thread its own part, kPieceBytes a turn.
class ReadBound {
 public:
  static constexpr std::size_t kBufferBytes = std::size_t(256) << 20, kPieceBytes = std::size_t(8) << 20;
  explicit ReadBound(kernels::cpu::ThreadPool& pool) : pool_(pool), buffer_(kBufferBytes) { std::memset(buffer_.data(), 1, kBufferBytes); }
  void turn(Samples& s) {  // seconds a byte
    const std::byte* piece = buffer_.data() + at_;
    at_ = (at_ + kPieceBytes) % kBufferBytes;
    const std::size_t part = kPieceBytes / std::size_t(pool_.size()) / 256 * 256;
    s.take(double(part) * pool_.size(), [&] {
      pool_.run([&](int thread) {
        const char* p = reinterpret_cast<const char*>(piece) + std::size_t(thread) * part;
        __m128i a = _mm_setzero_si128(), b = a, c = a, d = a;
        for (std::size_t i = 0; i < part; i += 64) {
          _mm_prefetch(p + i + 4096, _MM_HINT_T0);
          a = _mm_add_epi32(a, _mm_load_si128(reinterpret_cast<const __m128i*>(p + i)));
          b = _mm_add_epi32(b, _mm_load_si128(reinterpret_cast<const __m128i*>(p + i + 16)));
          c = _mm_add_epi32(c, _mm_load_si128(reinterpret_cast<const __m128i*>(p + i + 32)));
          d = _mm_add_epi32(d, _mm_load_si128(reinterpret_cast<const __m128i*>(p + i + 48)));
        }
        volatile int sink = _mm_cvtsi128_si32(_mm_add_epi32(_mm_add_epi32(a, b), _mm_add_epi32(c, d)));
        (void)sink;
      });
    });
  }

 private:
  kernels::cpu::ThreadPool& pool_;
  kernels::cpu::Pages buffer_;
  std::size_t at_ = 0;
};

/// Register-only loop of 256-bit fused multiply-adds on every thread; the machine must have AVX2.
inline void multiply_add_turn(kernels::cpu::ThreadPool& pool, Samples& s) {  // seconds an operation (a multiply or an add)
  constexpr long kLoops = 4000;
  s.take(double(kLoops) * 12 * 16 * pool.size(), [&] {
    pool.run([&](int) {
      long n = kLoops;
      asm volatile(
          "1:\n vfmadd231ps %%ymm12,%%ymm13,%%ymm0\n vfmadd231ps %%ymm12,%%ymm13,%%ymm1\n vfmadd231ps %%ymm12,%%ymm13,%%ymm2\n"
          "vfmadd231ps %%ymm12,%%ymm13,%%ymm3\n vfmadd231ps %%ymm12,%%ymm13,%%ymm4\n vfmadd231ps %%ymm12,%%ymm13,%%ymm5\n"
          "vfmadd231ps %%ymm12,%%ymm13,%%ymm6\n vfmadd231ps %%ymm12,%%ymm13,%%ymm7\n vfmadd231ps %%ymm12,%%ymm13,%%ymm8\n"
          "vfmadd231ps %%ymm12,%%ymm13,%%ymm9\n vfmadd231ps %%ymm12,%%ymm13,%%ymm10\n vfmadd231ps %%ymm12,%%ymm13,%%ymm11\n"
          "dec %0\n jnz 1b\n vzeroupper\n"
          : "+r"(n)::"xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13");
    });
  });
}

/// As above with the BF16 dot on 512 bits; the machine must have AVX-512 BF16.
inline void bf16_dot_turn(kernels::cpu::ThreadPool& pool, Samples& s) {  // seconds an operation
  constexpr long kLoops = 4000;
  s.take(double(kLoops) * 12 * 64 * pool.size(), [&] {
    pool.run([&](int) {
      long n = kLoops;
      asm volatile(
          "1:\n vdpbf16ps %%zmm12,%%zmm13,%%zmm0\n vdpbf16ps %%zmm12,%%zmm13,%%zmm1\n vdpbf16ps %%zmm12,%%zmm13,%%zmm2\n"
          "vdpbf16ps %%zmm12,%%zmm13,%%zmm3\n vdpbf16ps %%zmm12,%%zmm13,%%zmm4\n vdpbf16ps %%zmm12,%%zmm13,%%zmm5\n"
          "vdpbf16ps %%zmm12,%%zmm13,%%zmm6\n vdpbf16ps %%zmm12,%%zmm13,%%zmm7\n vdpbf16ps %%zmm12,%%zmm13,%%zmm8\n"
          "vdpbf16ps %%zmm12,%%zmm13,%%zmm9\n vdpbf16ps %%zmm12,%%zmm13,%%zmm10\n vdpbf16ps %%zmm12,%%zmm13,%%zmm11\n"
          "dec %0\n jnz 1b\n vzeroupper\n"
          : "+r"(n)::"xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13");
    });
  });
}

}  // namespace lockstep::bench
