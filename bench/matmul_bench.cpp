// Matmuls at Qwen3.5-0.8B's shapes beside their bounds: decode against bytes over read bandwidth and, quantised, against the unpack-and-dot
// loop run from L1; prompts against 256-bit multiply-adds from registers. All measured in this run, in turns.
//   matmul_bench [--threads N] [--isa NAME] [--seconds S a line] [--bits LIST such as 4,16] [--part decode|rows|prompt|step]
//                [--rows LIST] for rows and prompt
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "bounds.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/runtime/matmul_matrix.h"

namespace lockstep::bench {
namespace {

using namespace kernels;
using cpu::CpuMatrix;
using cpu::MatmulJob;
using cpu::MatmulOutput;

struct Options {
  int threads = 2;
  Isa isa = best_isa();
  double seconds = 0.6;
  std::vector<int> bits{4, 8, 16}, rows;
  std::string part;
};

struct Random {
  std::uint64_t state = 0x9E3779B97F4A7C15ull;
  std::uint64_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  }
  float normal() {
    float t = 0;
    for (int i = 0; i < 6; i++) t += float(next() >> 40) * 0x1p-24f;
    return (t - 3) * 1.414f;
  }
};

/// Random weights of one shape; a matrix made of them points at them where it is bf16. On 4 KiB pages, as a file's are.
struct Source {
  std::vector<std::byte> bytes, scales, biases;
  Weight weight;
};

std::unique_ptr<Source> make_source(std::int64_t out, std::int64_t in, int bits, Random& random) {
  auto s = std::make_unique<Source>();
  Weight& w = s->weight;
  w.name = "bench";
  w.out_features = out;
  w.in_features = in;
  const bool plain = bits == 16;
  const std::size_t n = std::size_t(out * in) / 8 * std::size_t(bits);
  s->bytes.resize(n + 64);
  std::byte* p = s->bytes.data();
  if (plain) {
    std::uint16_t table[4096];
    for (auto& v : table) v = to_bf16(0.03f * random.normal());
    for (std::size_t i = 0; i < n / 2; i++) std::memcpy(p + 2 * i, &table[random.next() >> 52], 2);
    w.weight = {"weight", DType::kBF16, {out, in}, p, n};
    return s;
  }
  for (std::size_t i = 0; i < n; i += 8) {
    const std::uint64_t v = random.next();
    std::memcpy(p + i, &v, 8);
  }
  w.affine = true;
  w.bits = bits;
  w.group_size = 64;
  w.weight = {"weight", DType::kU32, {out, in / 32 * bits}, p, n};
  const std::size_t groups = std::size_t(out * in / 64);
  auto params = [&](std::vector<std::byte>& pages, float size) {
    pages.resize(groups * 2);
    for (std::size_t i = 0; i < groups; i++) {
      const bf16 v = to_bf16(size * random.normal());
      std::memcpy(pages.data() + 2 * i, &v, 2);
    }
    return TensorView{"params", DType::kBF16, {out, in / 64}, pages.data(), groups * 2};
  };
  w.scales = params(s->scales, 0.003f);
  w.biases = params(s->biases, 0.03f);
  return s;
}

struct Held {  // a matrix and, where it is bf16, its bytes
  std::unique_ptr<Source> source;
  std::unique_ptr<CpuMatrix> matrix;
};

Held make(std::int64_t out, std::int64_t in, int bits, Isa isa, cpu::ThreadPool& pool, Random& random) {
  Held h;
  h.source = make_source(out, in, bits, random);
  auto m = cpu::make_matrix(h.source->weight, isa, pool);
  if (!m.ok()) {
    fmt::print(stderr, "{}\n", m.error().message);
    std::exit(1);
  }
  h.matrix = std::move(m).value();
  h.source.reset();
  return h;
}

/// The unpack-and-dot loop from L1: one tile's kernel again and again on every thread.
class UnpackBound {
 public:
  UnpackBound(int bits, int rows, Isa isa, cpu::ThreadPool& pool, Random& random)
      : pool_(pool), isa_(isa), rows_(rows), held_(make(16, kIn, bits, isa, pool, random)), y_(16 * std::size_t(rows)) {
    const auto& m = static_cast<const cpu::StoredMatrix&>(*held_.matrix);
    integers_.assign(std::size_t(rows) * kIn, 77);
    units_.assign(std::size_t(rows) * kIn / 64, 1);
    call_ = {m.data, m.layout, {integers_.data(), units_.data(), units_.data()}, rows, {nullptr, MatmulOutput::kStoreBf16, y_.data(), 16, 16}};
  }
  void turn(Samples& s) {  // seconds a byte of packed weight
    constexpr int kLoops = 200;
    s.take(double(held_.matrix->read_bytes) * kLoops * pool_.size(), [&] {
      pool_.run([&](int thread) {
        cpu::QuantisedCall call = call_;
        bf16 y[16 * 8];
        call.target.y = y;
        (void)thread;
        for (int i = 0; i < kLoops; i++) cpu::quantised_matmul_kernels(isa_).few(call, 0, 1);
      });
    });
  }

 private:
  static constexpr std::int64_t kIn = 1024;
  cpu::ThreadPool& pool_;
  const Isa isa_;
  const int rows_;
  Held held_;
  std::vector<bf16> y_;
  std::vector<std::int16_t> integers_;
  std::vector<float> units_;
  cpu::QuantisedCall call_;
};

struct Shape {
  std::int64_t out, in;
};
const Shape kShapes[] = {{3584, 1024}, {1024, 3584}, {6144, 1024}, {1024, 2048}, {248320, 1024}};

class Bench {
 public:
  explicit Bench(const Options& o) : o_(o), pool_(o.threads), read_(pool_) { cpu::flush_denormals(); }

  void decode(int bits, int rows) {
    for (const Shape& shape : kShapes) {
      std::vector<Held> copies;  // more than the caches hold
      std::size_t bytes = 0;
      while (bytes < (std::size_t(192) << 20)) {
        copies.push_back(make(shape.out, shape.in, bits, o_.isa, pool_, random_));
        bytes += copies.back().matrix->read_bytes;
      }
      const auto x = activations(rows, shape.in);
      auto scratch = cpu::make_matmul_scratch(rows, shape.in, o_.isa, o_.threads);
      std::vector<float> y(std::size_t(rows * shape.out));
      std::vector<std::uint8_t> flags(static_cast<std::size_t>(rows));
      std::unique_ptr<UnpackBound> unpack;
      if (bits != 16 && rows <= cpu::quantised_matmul_kernels(o_.isa).few_rows) unpack = std::make_unique<UnpackBound>(bits, rows, o_.isa, pool_, random_);
      Samples time, bytes_bound, unpack_bound;
      std::size_t at = 0;
      const int calls = int(std::max<std::size_t>(1, (std::size_t(4) << 20) / copies[0].matrix->read_bytes));
      sample(time, 40, o_.seconds, [&](int) {
        read_.turn(bytes_bound);
        if (unpack) unpack->turn(unpack_bound);
        time.take(calls, [&] {
          for (int i = 0; i < calls; i++, at = (at + 1) % copies.size()) {
            const MatmulJob job{copies[at].matrix.get(), nullptr, MatmulOutput::kStoreBf16, y.data(), shape.out};
            cpu::matmul(o_.isa, pool_, *scratch, x.data(), shape.in, rows, {&job, 1}, flags.data());
          }
        });
      });
      const double size = double(copies[0].matrix->read_bytes), bound = size * std::max(bytes_bound.median(), unpack_bound.median());
      fmt::print("decode {:>2} bits {:>6}x{:<4} rows {}: {:7.1f} us, {:5.2f} GB/s; read {:5.2f} GB/s{}; {:3.0f}% of the bound ({} of {} samples clean)\n", bits,
                 shape.out, shape.in, rows, time.median() * 1e6, size / time.median() * 1e-9, 1e-9 / bytes_bound.median(),
                 unpack ? fmt::format(", unpack {:5.2f} GB/s", 1e-9 / unpack_bound.median()) : "", 100 * bound / time.median(), time.clean(), time.all());
      std::fflush(stdout);
    }
  }

  void prompt(int bits, int rows) {
    for (Shape shape : kShapes) {
      if (shape.out > 8192) continue;  // a prompt needs the head for its last row only
      const Held h = make(shape.out, shape.in, bits, o_.isa, pool_, random_);
      const auto x = activations(rows, shape.in);
      auto scratch = cpu::make_matmul_scratch(rows, shape.in, o_.isa, o_.threads);
      std::vector<float> y(std::size_t(rows * shape.out));
      std::vector<std::uint8_t> flags(static_cast<std::size_t>(rows));
      Samples time, bound, dot_bound;
      const bool dot = bits == 16 && o_.isa == Isa::kAvx512Bf16;
      sample(time, 20, 2 * o_.seconds, [&](int) {
        for (int i = 0; i < 8; i++) multiply_add_turn(pool_, bound);
        for (int i = 0; i < 8 && dot; i++) bf16_dot_turn(pool_, dot_bound);
        time.take(1, [&] {
          const MatmulJob job{h.matrix.get(), nullptr, MatmulOutput::kStoreBf16, y.data(), shape.out};
          cpu::matmul(o_.isa, pool_, *scratch, x.data(), shape.in, rows, {&job, 1}, flags.data());
        });
      });
      const double operations = 2.0 * double(shape.out) * double(shape.in) * rows;
      fmt::print(
          "prompt {:>2} bits {:>6}x{:<4} rows {:>3}: {:7.1f} GFLOP/s; multiply-adds {:6.1f} GFLOP/s, {:4.2f} of it{} ({} of {} samples "
          "clean)\n",
          bits, shape.out, shape.in, rows, operations / time.median() * 1e-9, 1e-9 / bound.median(),
          operations / time.median() * bound.median(),
          dot ? fmt::format("; BF16 dot {:6.1f} GFLOP/s, {:4.2f} of it", 1e-9 / dot_bound.median(),
                            operations / time.median() * dot_bound.median())
              : "",
          time.clean(), time.all());
      std::fflush(stdout);
    }
  }

  /// All matmuls of a decode step: 18 DeltaNet layers, 6 attention layers, 24 MLPs, the head.
  void step(int bits, int rows) {
    struct Call {
      std::int64_t in;
      std::vector<std::int64_t> outs;
    };
    std::vector<Call> plan;
    for (int layer = 0; layer < 24; layer++) {
      if (layer % 4 == 3) plan.push_back({1024, {4096, 512, 512}});
      else plan.push_back({1024, {6144, 2048, 16, 16}});
      plan.push_back({2048, {1024}});
      plan.push_back({1024, {3584, 3584}});
      plan.push_back({3584, {1024}});
    }
    plan.push_back({1024, {248320}});
    std::vector<Held> held;
    double size = 0;
    for (const Call& c : plan)
      for (auto out : c.outs) {
        held.push_back(make(out, c.in, bits, o_.isa, pool_, random_));
        size += double(held.back().matrix->read_bytes);
      }
    const auto x = activations(rows, 3584);
    auto scratch = cpu::make_matmul_scratch(rows, 3584, o_.isa, o_.threads);
    std::vector<std::vector<float>> y(4);
    for (auto& v : y) v.resize(std::size_t(rows) * 248320);
    std::vector<std::uint8_t> flags(static_cast<std::size_t>(rows));
    std::unique_ptr<UnpackBound> unpack;
    if (bits != 16 && rows <= cpu::quantised_matmul_kernels(o_.isa).few_rows) unpack = std::make_unique<UnpackBound>(bits, rows, o_.isa, pool_, random_);
    Samples time, bytes_bound, unpack_bound;
    sample(time, 15, 4 * o_.seconds, [&](int) {
      for (int i = 0; i < 6; i++) read_.turn(bytes_bound);
      if (unpack)
        for (int i = 0; i < 6; i++) unpack->turn(unpack_bound);
      time.take(1, [&] {
        std::size_t at = 0;
        for (const Call& c : plan) {
          MatmulJob jobs[4];
          for (std::size_t j = 0; j < c.outs.size(); j++) jobs[j] = {held[at++].matrix.get(), nullptr, MatmulOutput::kStoreBf16, y[j].data(), c.outs[j]};
          cpu::matmul(o_.isa, pool_, *scratch, x.data(), c.in, rows, {jobs, c.outs.size()}, flags.data());
        }
      });
    });
    const double bound = size * std::max(bytes_bound.median(), unpack_bound.median());
    fmt::print(
        "step   {:>2} bits rows {}: {:6.2f} ms for {:.0f} MB ({:.1f} steps/s), {:5.2f} GB/s; read {:5.2f} GB/s{}; {:3.0f}% of the bound "
        "({} of {} samples clean)\n",
        bits, rows, time.median() * 1e3, size * 1e-6, 1 / time.median(), size / time.median() * 1e-9, 1e-9 / bytes_bound.median(),
        unpack ? fmt::format(", unpack {:5.2f} GB/s", 1e-9 / unpack_bound.median()) : "", 100 * bound / time.median(), time.clean(),
        time.all());
    std::fflush(stdout);
  }

 private:
  std::vector<bf16> activations(int rows, std::int64_t in) {
    std::vector<bf16> x(std::size_t(rows * in));
    for (bf16& v : x) v = to_bf16(random_.normal());
    return x;
  }
  const Options o_;
  cpu::ThreadPool pool_;
  ReadBound read_;
  Random random_;
};

int run(const Options& o) {
  fmt::print("matmul_bench: {}, {} threads{}\n", isa_name(o.isa), o.threads,
             o.isa != Isa::kAvx512Bf16                         ? ""
             : cpu::plain_matmul_kernels(o.isa).dot_is_exact() ? "; BF16 dot equals the fused pair"
                                                               : "; BF16 dot differs from the fused pair");
  Bench bench(o);
  for (int bits : o.bits) {
    if (o.part.empty() || o.part == "step") bench.step(bits, 1);
    if (o.part.empty() || o.part == "decode") bench.decode(bits, 1);
    if (o.part.empty() || o.part == "rows")
      for (int rows : o.rows.empty() ? std::vector<int>{2, 4, 8} : o.rows) bench.decode(bits, rows);
    if (o.part.empty() || o.part == "prompt")
      for (int rows : o.rows.empty() ? std::vector<int>{16, 64, 512} : o.rows) bench.prompt(bits, rows);
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  lockstep::bench::Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--threads") o.threads = std::atoi(value.c_str());
    else if (flag == "--seconds") o.seconds = std::atof(value.c_str());
    else if (flag == "--part") o.part = value;
    else if (flag == "--isa" && lockstep::kernels::isa_from_name(value)) o.isa = *lockstep::kernels::isa_from_name(value);
    else if (flag == "--bits" || flag == "--rows") {
      std::vector<int>& list = flag == "--bits" ? o.bits : o.rows;
      list.clear();
      for (std::size_t at = 0; at < value.size(); at = value.find(',', at) == std::string::npos ? value.size() : value.find(',', at) + 1)
        list.push_back(std::atoi(value.c_str() + at));
    } else {
      fmt::print(stderr, "matmul_bench: {} {} is not an argument\n", flag, value);
      return 2;
    }
  }
  const auto have = lockstep::kernels::available_isas();
  if (std::find(have.begin(), have.end(), o.isa) == have.end()) {
    fmt::print(stderr, "matmul_bench: this machine has no {}\n", lockstep::kernels::isa_name(o.isa));
    return 2;
  }
  return lockstep::bench::run(o);
}
