#include "cli/machine_bounds.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cpu/matmul_kernels.h"
#include "kernels/cpu/runtime/pages.h"

namespace lockstep::cli {
namespace {

using kernels::cpu::ThreadPool;

/// Median rate of repeated passes of f(thread) on all threads, in units a second, over a quarter of a second and at least five passes.
template <class F>
double median_rate(ThreadPool& pool, double units_per_pass, F&& f) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  const auto end = Clock::now() + std::chrono::milliseconds(250);
  while (seconds.size() < 5 || Clock::now() < end) {
    const auto begin = Clock::now();
    pool.run(f);
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + std::ptrdiff_t(seconds.size() / 2), seconds.end());
  return units_per_pass / seconds[seconds.size() / 2];
}

/// n is a multiple of 8. With kPrefetch a page ahead of the reads: an Intel chip's own prefetch stops at a page's end.
template <bool kPrefetch>
[[gnu::always_inline]] inline std::uint64_t read_body(const std::uint64_t* p, std::size_t n) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < n; i += 8) {
    if (kPrefetch) __builtin_prefetch(p + i + 512);
    for (std::size_t j = 0; j < 8; j++) sum ^= p[i + j];
  }
  return sum;
}
using Read = std::uint64_t (*)(const std::uint64_t*, std::size_t);
std::uint64_t read_plain(const std::uint64_t* p, std::size_t n) { return read_body<false>(p, n); }
[[gnu::target("avx2")]] std::uint64_t read_avx2(const std::uint64_t* p, std::size_t n) { return read_body<false>(p, n); }
[[gnu::target("avx2")]] std::uint64_t read_ahead(const std::uint64_t* p, std::size_t n) { return read_body<true>(p, n); }

constexpr int kChains = 12;
[[gnu::target("avx2,fma")]] float multiply_adds(std::int64_t rounds) {
  __m256 sums[kChains];
  for (int i = 0; i < kChains; i++) sums[i] = _mm256_set1_ps(float(i));
  const __m256 factor = _mm256_set1_ps(0.999f), term = _mm256_set1_ps(0.001f);
  for (std::int64_t round = 0; round < rounds; round++) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; i++) sums[i] = _mm256_fmadd_ps(sums[i], factor, term);
  }
  for (int i = 1; i < kChains; i++) sums[0] = _mm256_add_ps(sums[0], sums[i]);
  return _mm256_cvtss_f32(sums[0]);
}

}  // namespace

double read_rate(ThreadPool& pool, std::size_t bytes) {
  const std::size_t threads = std::size_t(pool.size()), part = std::max<std::size_t>(bytes / threads / 64, 1) * 8;
  const kernels::cpu::Pages pages(part * threads * 8);  // huge ones where there are, as weights lie
  if (!pages.data()) return 0;
  std::memset(pages.data(), 1, part * threads * 8);
  const auto* memory = reinterpret_cast<const std::uint64_t*>(pages.data());
  std::vector<std::uint64_t> sums(threads * 8);  // one cache line each
  const std::size_t repeats =
      std::max<std::size_t>(1, (std::size_t(8) << 20) / (part * 8));  // a pass of a small set is long enough to time
  const auto rate = [&](Read read) {
    return median_rate(pool, double(part * 8 * threads * repeats), [&](int thread) {
      for (std::size_t i = 0; i < repeats; i++) {
        sums[std::size_t(thread) * 8] += read(memory + part * std::size_t(thread), part);
        asm volatile("" ::: "memory");  // every pass reads
      }
    });
  };
  const double best = __builtin_cpu_supports("avx2") ? std::max(rate(read_avx2), rate(read_ahead)) : rate(read_plain);
  volatile std::uint64_t keep = sums[0];
  (void)keep;
  return best;
}

double multiply_add_rate(ThreadPool& pool) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
  constexpr std::int64_t kRounds = 4'000'000;
  std::vector<float> sums(std::size_t(pool.size()) * 16);
  const double rate = median_rate(pool, 2.0 * 8 * kChains * double(kRounds) * pool.size(),
                                [&](int thread) { sums[std::size_t(thread) * 16] += multiply_adds(kRounds); });
  volatile float keep = sums[0];
  (void)keep;
  return rate;
}

double unpack_rate(ThreadPool& pool, kernels::Isa isa, int bits, int group_size) {
  using namespace kernels::cpu;
  constexpr std::int64_t kInputs = 1024;
  constexpr int kCalls = 20000;
  const QuantisedKernels& kernels = quantised_matmul_kernels(isa);
  TileLayout layout;
  layout.bits = bits;
  layout.group_size = group_size;
  layout.groups = kInputs / group_size;
  struct Work {
    std::vector<std::byte> memory;
    QuantisedCall call;
    float y[kTileOutputs];
  };
  std::vector<Work> work(static_cast<std::size_t>(pool.size()));
  const std::size_t x_bytes = kInputs * 2, groups_bytes = std::size_t(layout.groups) * 4;
  for (Work& w : work) {
    // Zeros do: no instruction of the kernel takes longer for other values.
    w.memory.resize(64 + (layout.tile_bytes() + 63) / 64 * 64 + x_bytes + 2 * groups_bytes);
    std::byte* at = w.memory.data() + (64 - std::uintptr_t(w.memory.data()) % 64) % 64;
    w.call.tiles = at;
    at += (layout.tile_bytes() + 63) / 64 * 64;
    w.call.x.integers = reinterpret_cast<std::int16_t*>(at);
    w.call.x.units = reinterpret_cast<float*>(at + x_bytes);
    w.call.x.sums = reinterpret_cast<float*>(at + x_bytes + groups_bytes);
    w.call.layout = layout;
    w.call.rows = 1;
    w.call.target.output = MatmulOutput::kF32;
    w.call.target.y = w.y;
    w.call.target.y_stride = kTileOutputs;
    w.call.target.out_features = kTileOutputs;
  }
  return median_rate(pool, double(layout.tile_bytes()) * kCalls * pool.size(), [&](int thread) {
    for (int i = 0; i < kCalls; i++) kernels.few(work[std::size_t(thread)].call, 0, 1);
  });
}

}  // namespace lockstep::cli
