// Who computes which piece of a matmul. A call is cut into pieces of outputs (and, with many rows, of rows); each thread gets one contiguous
// range of them, sized by bytes or products, and takes from another's when its own is done. None of this touches bits (kernels/ops/matmul.h).
#include "kernels/cpu/matmul.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <vector>

#include "kernels/cpu/runtime/matmul_matrix.h"

namespace lockstep::kernels::cpu {
namespace {

constexpr int kWindowRows = 512;  // rows worked at a time, so that scratch stays bounded and activations stay in cache
constexpr int kPlainChunkRows = 128, kMostJobs = 16;
constexpr std::int64_t kIntegerChunkBytes = 256 << 10;  // of cut x a thread keeps in L2 while tiles pass
constexpr std::int64_t kGrabBytes = 64 << 10;           // of weights taken at once with few rows
constexpr std::int64_t kAloneBytes = 16 << 10;          // fewer are not worth waking anyone for

constexpr int kGroupSizes[] = {32, 64, 128};
int form_of(int group_size) { return group_size == 32 ? 0 : group_size == 64 ? 1 : 2; }

/// Seconds of a small product with many rows on this thread.
double seconds_of(const PlainKernels& k) {
  constexpr int kRows = 32;
  constexpr std::int64_t kIn = 1024;
  const std::int64_t outputs = k.tile_outputs(kIn);
  const Pages weight(std::size_t(outputs * kIn) * sizeof(bf16)), x(k.x_bytes(kRows, kIn)), scratch(k.scratch_bytes(kIn));
  std::vector<float> y(std::size_t(outputs) * kRows);
  const PlainCall call{weight.data(), kIn, x.data(), kRows, {nullptr, MatmulOutput::kF32, y.data(), outputs, outputs}};
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < 8; run++) {
    const auto begin = std::chrono::steady_clock::now();
    k.many(call, 0, kRows, 0, outputs, scratch.data());
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

/// The set's plain kernels. Where the chip's BF16 dot differs from the fused pair, or runs at half its speed as on some, those of the pair: one
/// choice a process, and no bit depends on it.
const PlainKernels& plain_kernels(Isa isa) {
  const PlainKernels& own = plain_matmul_kernels(isa);
  if (isa != Isa::kAvx512Bf16) return own;
  const PlainKernels& pair = plain_matmul_kernels(Isa::kAvx512);
  static const bool dot = own.dot_is_exact() && seconds_of(own) <= seconds_of(pair);
  return dot ? own : pair;
}

int round_up(int n, int to) { return (n + to - 1) / to * to; }
std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

struct Sizes {
  int rows = 0;  // of a window
  std::size_t plain = 0, integers = 0, group_values = 0, thread = 0;
  std::size_t total(int threads) const { return plain + std::size(kGroupSizes) * (integers + 2 * group_values) + thread * std::size_t(threads); }
};

Sizes sizes_of(int max_rows, std::int64_t max_in, Isa isa) {
  Sizes s;
  const PlainKernels& plain = plain_kernels(isa);
  s.rows = round_up(std::min(std::max(max_rows, 1), kWindowRows), 8);
  s.plain = aligned(plain.x_bytes(s.rows, max_in));
  s.integers = aligned(std::size_t(s.rows) * std::size_t(max_in) * sizeof(std::int16_t));
  s.group_values = aligned(std::size_t(s.rows) * std::size_t((max_in + 31) / 32) * sizeof(float));
  s.thread = aligned(std::max(plain.scratch_bytes(max_in), quantised_matmul_kernels(isa).scratch_bytes));
  return s;
}

struct alignas(64) Range {  // of pieces, one thread's own
  std::atomic<std::int64_t> next{0};
  std::int64_t end = 0;
};

class Scratch final : public MatmulScratch {
 public:
  Scratch(int max_rows, std::int64_t max_in, Isa isa, int threads_)
      : threads(std::max(threads_, 1)), max_in_features(max_in), sizes(sizes_of(max_rows, max_in, isa)), pages(sizes.total(threads)),
        ranges(std::size_t(threads)) {
    LOCKSTEP_CHECK(pages.data());
    bytes = Pages::rounded(sizes.total(threads));
    std::byte* at = pages.data();
    auto take = [&](std::size_t n) { return std::exchange(at, at + n); };
    plain_x = take(sizes.plain);
    for (IntegerRows& form : integer_x) {
      form.integers = reinterpret_cast<std::int16_t*>(take(sizes.integers));
      form.units = reinterpret_cast<float*>(take(sizes.group_values));
      form.sums = reinterpret_cast<float*>(take(sizes.group_values));
    }
    thread_scratch = at;
  }
  const int threads;
  const std::int64_t max_in_features;
  const Sizes sizes;
  const Pages pages;
  std::byte* plain_x = nullptr;
  std::array<IntegerRows, std::size(kGroupSizes)> integer_x;
  std::byte* thread_scratch = nullptr;
  std::vector<Range> ranges;
};

/// One window of rows of a call.
struct Window {
  const PlainKernels& plain;
  const QuantisedKernels& quantised;
  Scratch& scratch;
  const bf16* x;
  std::int64_t x_stride;
  int rows;
  std::uint8_t* row_flags;
};

/// One job's pieces [first, first + chunks * across): chunk c of the rows, `outputs` outputs each, cost per piece in bytes or products.
struct Pieces {
  const StoredMatrix* matrix = nullptr;
  MatmulTarget target;
  bool many = false;
  int chunk_rows = 0;
  std::int64_t outputs = 0, across = 0, chunks = 1, first = 0, cost = 0;
  std::int64_t count() const { return across * chunks; }
};

Pieces pieces_of(const Window& w, const MatmulJob& job, int first_row) {
  Pieces p;
  p.matrix = static_cast<const StoredMatrix*>(job.weight);
  const StoredMatrix& m = *p.matrix;
  const std::size_t element = job.output == MatmulOutput::kF32 ? sizeof(float) : sizeof(bf16);
  p.target = {job.bias, job.output, static_cast<std::byte*>(job.y) + std::size_t(first_row) * std::size_t(job.y_stride) * element,
              job.y_stride, m.out_features};
  p.many = w.rows > (m.affine ? w.quantised.few_rows : w.plain.few_rows);
  if (!p.many) {
    p.chunk_rows = w.rows;
    p.outputs = kTileOutputs;
  } else if (m.affine) {
    p.chunk_rows = int(std::clamp<std::int64_t>(kIntegerChunkBytes / (2 * m.in_features) / 8 * 8, 32, kManyRows));
    p.outputs = w.quantised.many_tiles * kTileOutputs;
  } else {
    p.chunk_rows = kPlainChunkRows;
    p.outputs = w.plain.tile_outputs(m.in_features);
  }
  p.across = (m.out_features + p.outputs - 1) / p.outputs;
  p.chunks = (w.rows + p.chunk_rows - 1) / p.chunk_rows;
  p.cost = p.many ? p.outputs * m.in_features * p.chunk_rows : std::int64_t(m.read_bytes) / p.across + 1;
  return p;
}

/// Pieces [begin, end) of one job, `thread` its scratch.
void work(const Window& w, const Pieces& p, std::int64_t begin, std::int64_t end, int thread) {
  const StoredMatrix& m = *p.matrix;
  std::byte* scratch = w.scratch.thread_scratch + std::size_t(thread) * w.scratch.sizes.thread;
  while (begin < end) {
    const std::int64_t chunk = begin / p.across, at = begin % p.across, n = std::min(end - begin, p.across - at);
    const int row_begin = int(chunk) * p.chunk_rows, row_end = std::min(w.rows, row_begin + p.chunk_rows);
    const std::int64_t out_begin = at * p.outputs, out_end = std::min(m.out_features, (at + n) * p.outputs);
    if (m.affine) {
      const QuantisedCall call{m.data, m.layout, w.scratch.integer_x[std::size_t(form_of(m.layout.group_size))], w.rows, p.target};
      const std::int64_t tile_begin = out_begin / kTileOutputs, tile_end = (out_end + kTileOutputs - 1) / kTileOutputs;
      if (p.many) w.quantised.many(call, row_begin, row_end, tile_begin, tile_end, scratch);
      else w.quantised.few(call, tile_begin, tile_end);
    } else {
      const PlainCall call{m.data, m.in_features, w.scratch.plain_x, w.rows, p.target};
      if (p.many) w.plain.many(call, row_begin, row_end, out_begin, out_end, scratch);
      else w.plain.few(call, out_begin, out_end);
    }
    begin += n;
  }
}

/// Takes pieces of `range`, `grain` at a time, until it is empty.
void drain(const Window& w, std::span<const Pieces> jobs, Range& range, std::int64_t grain, int thread) {
  for (;;) {
    std::int64_t begin = range.next.fetch_add(grain, std::memory_order_relaxed);
    const std::int64_t end = std::min(begin + grain, range.end);
    if (begin >= end) return;
    for (const Pieces& p : jobs) {  // a grab may cross from one job into the next
      const std::int64_t to = std::min(end, p.first + p.count());
      if (begin < p.first || begin >= to) continue;
      work(w, p, begin - p.first, to - p.first, thread);
      begin = to;
    }
  }
}

/// Cuts the jobs' pieces into one range a thread by cost; returns the grain.
std::int64_t split(std::span<const Pieces> jobs, std::vector<Range>& ranges) {
  std::int64_t cost = 0, count = 0;
  for (const Pieces& p : jobs) cost += p.cost * p.count(), count += p.count();
  std::int64_t begin = 0;
  for (std::size_t t = 0; t < ranges.size(); t++) {
    // The piece where t + 1 shares of the cost are reached.
    double want = double(cost) * double(t + 1) / double(ranges.size());
    std::int64_t end = 0;
    for (const Pieces& p : jobs) {
      const std::int64_t n = std::clamp<std::int64_t>(std::int64_t(want / double(p.cost) + 0.5), 0, p.count());
      end += n;
      want -= double(p.cost) * double(p.count());
      if (want <= 0) break;
    }
    if (t + 1 == ranges.size()) end = count;
    ranges[t].next.store(begin, std::memory_order_relaxed);
    ranges[t].end = std::max(begin, end);
    begin = ranges[t].end;
  }
  if (jobs[0].many) return 1;
  return std::clamp<std::int64_t>(kGrabBytes * count / cost, 1, std::max<std::int64_t>(1, count / std::int64_t(4 * ranges.size())));
}

void prepare(const Window& w, ThreadPool& pool, std::span<const Pieces> jobs) {
  bool plain = false, form[std::size(kGroupSizes)] = {};
  for (const Pieces& p : jobs) (p.matrix->affine ? form[form_of(p.matrix->layout.group_size)] : plain) = true;
  const std::int64_t in = jobs[0].matrix->in_features;
  const bool many_plain = w.rows > w.plain.few_rows, many_integers = w.rows > w.quantised.few_rows;
  auto rows = [&](std::int64_t begin, std::int64_t end, int) {
    if (plain) w.plain.prepare(w.x, w.x_stride, in, int(begin), int(end), many_plain, w.scratch.plain_x);
    for (std::size_t i = 0; i < std::size(kGroupSizes); i++)
      if (form[i])
        w.quantised.prepare(w.x, w.x_stride, in, kGroupSizes[i], int(begin), int(end), many_integers ? w.quantised.block_rows : w.rows,
                            w.scratch.integer_x[i], w.row_flags);
  };
  if (w.rows <= 8) rows(0, w.rows, 0);  // cheaper than a second start of the threads
  else pool.parallel_for(w.rows, 8, rows);
}

void run_window(const Window& w, ThreadPool& pool, std::span<const MatmulJob> jobs, int first_row) {
  std::array<Pieces, kMostJobs> storage;
  std::int64_t count = 0, bytes = 0;
  for (std::size_t j = 0; j < jobs.size(); j++) {
    storage[j] = pieces_of(w, jobs[j], first_row);
    storage[j].first = count;
    count += storage[j].count();
    bytes += std::int64_t(storage[j].matrix->read_bytes) * w.rows;
  }
  const std::span<const Pieces> pieces(storage.data(), jobs.size());
  prepare(w, pool, pieces);
  if (pool.size() == 1 || bytes <= kAloneBytes) {
    for (const Pieces& p : pieces) work(w, p, 0, p.count(), 0);
    return;
  }
  std::vector<Range>& ranges = w.scratch.ranges;
  const std::int64_t grain = split(pieces, ranges);
  pool.run([&](int thread) {
    for (std::size_t i = 0; i < ranges.size(); i++) drain(w, pieces, ranges[(std::size_t(thread) + i) % ranges.size()], grain, thread);
  });
}

}  // namespace

std::size_t matmul_scratch_bytes(int max_rows, std::int64_t max_in_features, Isa isa, int threads) {
  return Pages::rounded(sizes_of(max_rows, max_in_features, isa).total(std::max(threads, 1)));
}

std::unique_ptr<MatmulScratch> make_matmul_scratch(int max_rows, std::int64_t max_in_features, Isa isa, int threads) {
  return std::make_unique<Scratch>(max_rows, max_in_features, isa, threads);
}

void matmul(Isa isa, ThreadPool& pool, MatmulScratch& scratch, const bf16* x, std::int64_t x_stride, int rows, std::span<const MatmulJob> jobs,
            std::uint8_t* row_flags) {
  Scratch& s = static_cast<Scratch&>(scratch);
  LOCKSTEP_CHECK(jobs.size() <= kMostJobs && s.threads == pool.size());
  if (rows == 0 || jobs.empty()) return;
  for (const MatmulJob& job : jobs)
    LOCKSTEP_CHECK(job.weight->in_features == jobs[0].weight->in_features && job.weight->in_features <= s.max_in_features);
  for (int r = 0; r < rows; r += s.sizes.rows) {
    const Window window{plain_kernels(isa), quantised_matmul_kernels(isa), s, x + r * x_stride, x_stride, std::min(s.sizes.rows, rows - r), row_flags + r};
    run_window(window, pool, jobs, r);
  }
}

}  // namespace lockstep::kernels::cpu
