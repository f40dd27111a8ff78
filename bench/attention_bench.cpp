// Attention at Qwen3.5-0.8B's shape (2 K/V heads of 4 query heads, head_dim 256) and Llama-1B's (8 of 4, 64) beside its bounds, measured in
// this run, in turns: decode against K/V bytes over read bandwidth, prompts against multiply-adds over the register-only loop.
//   attention_bench [--threads N] [--isa NAME] [--seconds S a line]
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <string>

#include "bounds.h"
#include "kernels/cpu/attention.h"

namespace lockstep::bench {
namespace {

using namespace kernels;
using kernels::cpu::kPageTokens;

struct Options {
  int threads = 2;
  Isa isa = best_isa();
  double seconds = 0.6;
};

struct Shape {
  const char* name;
  int kv_heads, group, head_dim;
  bool gated;
};
constexpr Shape kShapes[] = {{"0.8B", 2, 4, 256, true}, {"Llama-1B", 8, 4, 64, false}};

/// K and V of some layers, each [kv head][page], random; more layers than any cache holds where only a row is worked at a time.
class Cache {
 public:
  Cache(const Shape& shape, int keys, int layers) : shape_(shape), pages_((keys + kPageTokens - 1) / kPageTokens), layers_(layers) {
    half_ = std::size_t(kPageTokens) * shape.head_dim * sizeof(bf16);
    memory_ = kernels::cpu::Pages(2 * half_ * std::size_t(pages_) * shape.kv_heads * layers);
    std::uint64_t state = 7;
    bf16* p = reinterpret_cast<bf16*>(memory_.data());
    for (std::size_t i = 0; i < bytes() / sizeof(bf16); i++) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      p[i] = bf16(0x3f00 | (state >> 40 & 0x807f));  // +-[0.5, 1)
    }
    for (std::size_t i = 0; i < std::size_t(pages_) * shape.kv_heads * layers; i++) table_.push_back(memory_.data() + i * 2 * half_);
  }
  std::size_t bytes() const { return 2 * half_ * std::size_t(pages_) * shape_.kv_heads * layers_; }
  std::size_t layer_bytes() const { return bytes() / std::size_t(layers_); }
  const std::byte* const* pages(int layer, int kv_head) const {
    return table_.data() + (std::size_t(layer) * shape_.kv_heads + kv_head) * pages_;
  }
  std::size_t v_offset() const { return half_; }

 private:
  Shape shape_;
  int pages_, layers_;
  std::size_t half_;
  kernels::cpu::Pages memory_;
  std::vector<const std::byte*> table_;
};

/// One layer's attention of `rows` rows that end at key `keys`, cut for the threads as the mixer cuts it.
class Layer {
 public:
  Layer(const Shape& shape, const Options& options, kernels::cpu::ThreadPool& pool, int rows, int keys)
      : shape_(shape),
        pool_(pool),
        kernels_(kernels::cpu::attention_kernels(options.isa)),
        rows_(rows),
        q_(std::size_t(rows) * heads() * shape.head_dim, 0x3e80),
        out_(q_) {
    for (int r = 0; r < rows; r++) counts_.push_back(keys - rows + 1 + r);
    scratch_floats_ = kernels::cpu::attention_scratch_floats(kRowsOfItem, shape.group, shape.head_dim) / 16 * 16 + 16;
    scratch_ = kernels::cpu::Pages(scratch_floats_ * sizeof(float) * std::size_t(pool.size()));
  }
  std::size_t heads() const { return std::size_t(shape_.kv_heads) * shape_.group; }
  double multiply_adds() const {
    double n = 0;
    for (int c : counts_) n += c;
    return 2 * n * double(heads()) * shape_.head_dim;
  }
  void run(const Cache& cache, int layer) {
    const int blocks = (rows_ + kRowsOfItem - 1) / kRowsOfItem,
              per = blocks * shape_.kv_heads >= 2 * pool_.size() ? shape_.group : std::max(1, shape_.group / 2);
    const int parts = shape_.group / per;
    pool_.parallel_for(std::int64_t(blocks) * shape_.kv_heads * parts, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
      for (std::int64_t i = begin; i < end; i++) {
        const int block = blocks - 1 - int(i / (shape_.kv_heads * parts)), kv = int(i / parts % shape_.kv_heads),
                  head = kv * shape_.group + int(i % parts) * per;
        const int row = block * kRowsOfItem;
        kernels::cpu::AttentionArgs a;
        a.rows = std::min(kRowsOfItem, rows_ - row), a.heads = per, a.head_dim = shape_.head_dim;
        const std::size_t at = (std::size_t(row) * heads() + head) * shape_.head_dim;
        a.q = &q_[at], a.out = &out_[at];
        a.q_row_stride = a.out_row_stride = std::int64_t(heads()) * shape_.head_dim;
        a.q_head_stride = a.out_head_stride = shape_.head_dim;
        if (shape_.gated) a.gate = a.q, a.gate_row_stride = a.q_row_stride, a.gate_head_stride = a.q_head_stride;
        a.pages = cache.pages(layer, kv), a.v_offset = cache.v_offset();
        a.key_counts = &counts_[std::size_t(row)];
        a.c = float(1.4426950408889634 / std::sqrt(double(shape_.head_dim)));
        a.scratch = reinterpret_cast<float*>(scratch_.data()) + std::size_t(thread) * scratch_floats_;
        kernels_.attention(a);
      }
    });
  }

 private:
  static constexpr int kRowsOfItem = 16;
  Shape shape_;
  kernels::cpu::ThreadPool& pool_;
  const kernels::cpu::AttentionKernels& kernels_;
  int rows_;
  std::vector<bf16> q_, out_;
  std::vector<std::int32_t> counts_;
  std::size_t scratch_floats_;
  kernels::cpu::Pages scratch_;
};

void decode(const Options& options, kernels::cpu::ThreadPool& pool, const Shape& shape, int keys, int rows) {
  const std::size_t one = 2ull * shape.kv_heads * keys * shape.head_dim * 2;
  const int layers = int(std::max<std::size_t>(6, (std::size_t(96) << 20) / one));
  const Cache cache(shape, keys, layers);
  Layer layer(shape, options, pool, rows, keys);
  ReadBound read(pool);
  Samples bound, kernel;
  sample(kernel, 60, options.seconds, [&](int turn) {
    read.turn(bound);
    kernel.take(double(cache.layer_bytes()), [&] { layer.run(cache, turn % layers); });
  });
  fmt::print("{:9} decode {} row{} {:5} keys: {:7.1f} us a layer, {:5.1f} GB/s of {:5.1f} ({:3.0f}%)\n", shape.name, rows,
             rows > 1 ? "s" : " ", keys, kernel.median() * double(cache.layer_bytes()) * 1e6, 1e-9 / kernel.median(), 1e-9 / bound.median(),
             100 * bound.median() / kernel.median());
}

void prompt(const Options& options, kernels::cpu::ThreadPool& pool, const Shape& shape, int rows, int keys) {
  const Cache cache(shape, keys, 1);
  Layer layer(shape, options, pool, rows, keys);
  Samples bound, kernel;
  sample(kernel, 20, options.seconds, [&](int) {
    multiply_add_turn(pool, bound);
    kernel.take(2 * layer.multiply_adds(), [&] { layer.run(cache, 0); });
  });
  fmt::print("{:9} prompt {:4} rows to key {:5}: {:7.1f} us a layer, {:5.1f} GFLOP/s of {:5.1f} ({:3.0f}%)\n", shape.name, rows, keys,
             kernel.median() * 2 * layer.multiply_adds() * 1e6, 1e-9 / kernel.median(), 1e-9 / bound.median(),
             100 * bound.median() / kernel.median());
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--threads") options.threads = std::atoi(value.c_str());
    if (name == "--seconds") options.seconds = std::atof(value.c_str());
    if (name == "--isa") options.isa = lockstep::kernels::isa_from_name(value).value_or(options.isa);
  }
  lockstep::kernels::cpu::flush_denormals();
  lockstep::kernels::cpu::ThreadPool pool(options.threads);
  fmt::print("attention_bench: {}, {} threads\n", lockstep::kernels::isa_name(options.isa), options.threads);
  for (const Shape& shape : kShapes) {
    for (int keys : {128, 512, 2048, 8192}) decode(options, pool, shape, keys, 1);
    decode(options, pool, shape, 2048, 9);
    for (int keys : {512, 2048}) prompt(options, pool, shape, 512, keys);
  }
}
