// Gated DeltaNet at Qwen3.5-0.8B's shape (16 key heads, 16 value heads, 128 x 128 states) beside its bounds, measured in this run, in
// turns: decode against state bytes over read bandwidth, prompts against multiply-adds over the register-only loop; the convolution beside
// them.
//   delta_net_bench [--threads N] [--isa NAME] [--seconds S a line]
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <string>

#include "bounds.h"
#include "kernels/cpu/delta_net.h"

namespace lockstep::bench {
namespace {

using namespace kernels;

struct Options {
  int threads = 2;
  Isa isa = best_isa();
  double seconds = 0.6;
};

constexpr int kKeyHeads = 16, kPerKey = 1, kDim = 128, kHeads = kKeyHeads * kPerKey;
constexpr std::int64_t kChannels = 2 * kKeyHeads * kDim + kHeads * kDim;

/// Recurrent state of one layer, and rows to feed it.
class Layer {
 public:
  Layer(const Options& options, kernels::cpu::ThreadPool& pool, int rows, int layers)
      : pool_(pool), kernels_(kernels::cpu::delta_net_kernels(options.isa)), rows_(rows), layers_(layers) {
    state_ = kernels::cpu::Pages(state_bytes() * std::size_t(layers));
    k_.resize(std::size_t(kernels::cpu::kOpenSlots) * kKeyHeads * kDim);
    g_.resize(std::size_t(kernels::cpu::kOpenSlots) * kHeads);
    cum_ = g_;
    d_.resize(g_.size() * kDim);
    ring_.resize(std::size_t(kernels::cpu::kRawSlots) * kChannels);
    std::uint64_t state = 5;
    for (std::size_t i = 0; i < std::size_t(rows) * kChannels; i++) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      qkv_.push_back(bf16(0x3d80 | (state >> 40 & 0x807f)));  // +-1/16 .. 1/8: a key is about of length 1
    }
    taps_.assign(4 * kChannels, 0.3f);
    conv_.resize(qkv_.size());
    gate_.assign(std::size_t(rows) * kHeads, -0.1f);
    beta_.assign(gate_.size(), 0.5f);
    out_.resize(std::size_t(rows) * kHeads * kDim);
    flags_.resize(std::size_t(rows));
    scratch_floats_ = kernels::cpu::delta_net_scratch_floats(kDim, kDim) / 16 * 16 + 16;
    scratch_ = kernels::cpu::Pages(scratch_floats_ * sizeof(float) * std::size_t(pool.size()));
  }
  static std::size_t state_bytes() { return std::size_t(kHeads) * kDim * kDim * sizeof(float); }
  /// Rows from position `at` on; all stand.
  void run(std::int64_t at, int layer) {
    pool_.parallel_for(kKeyHeads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
      for (std::int64_t h = begin; h < end; h++) {
        kernels::cpu::DeltaNetArgs a;
        a.key_dim = a.value_dim = kDim, a.value_heads = kPerKey;
        a.state = reinterpret_cast<float*>(state_.data() + state_bytes() * std::size_t(layer)) + h * kPerKey * kDim * kDim;
        a.open_k = k_.data() + h * kDim, a.open_k_stride = kKeyHeads * kDim;
        a.open_g = g_.data() + h * kPerKey, a.open_cum = cum_.data() + h * kPerKey, a.open_g_stride = kHeads;
        a.open_d = d_.data() + h * kPerKey * kDim, a.open_d_stride = std::int64_t(kHeads) * kDim;
        a.folded = at / 16 * 16, a.length = at;
        a.rows = a.stand = rows_;
        a.q = qkv_.data() + h * kDim, a.k = a.q + kKeyHeads * kDim, a.v = qkv_.data() + 2 * kKeyHeads * kDim + h * kPerKey * kDim;
        a.qkv_stride = kChannels;
        a.g = gate_.data() + h * kPerKey, a.beta = beta_.data() + h * kPerKey, a.coefficient_stride = kHeads;
        a.scale = float(1 / std::sqrt(double(kDim)));
        a.out = out_.data() + h * kPerKey * kDim, a.out_stride = std::int64_t(kHeads) * kDim;
        a.row_flags = flags_.data();
        a.scratch = reinterpret_cast<float*>(scratch_.data()) + std::size_t(thread) * scratch_floats_;
        kernels_.delta_net(a);
      }
    });
  }
  void convolve() {
    pool_.parallel_for(kChannels, 512, [&](std::int64_t begin, std::int64_t end, int) {
      kernels::cpu::ConvArgs a;
      a.rows = rows_, a.channels = int(kChannels), a.channel_begin = int(begin), a.channel_end = int(end), a.position = 64;
      a.raw = qkv_.data(), a.raw_stride = kChannels, a.ring = ring_.data(), a.taps = taps_.data();
      a.out = conv_.data(), a.out_stride = kChannels;
      kernels_.conv_silu(a);
    });
  }

 private:
  kernels::cpu::ThreadPool& pool_;
  const kernels::cpu::DeltaNetKernels& kernels_;
  int rows_, layers_;
  kernels::cpu::Pages state_, scratch_;
  std::size_t scratch_floats_;
  std::vector<bf16> k_, qkv_, ring_, conv_;
  std::vector<float> g_, cum_, d_, gate_, beta_, out_, taps_;
  std::vector<std::uint8_t> flags_;
};

/// A call of `rows` rows at each place of a chunk, states of 96 MB in turn.
void decode(const Options& options, kernels::cpu::ThreadPool& pool, int rows) {
  constexpr int kLayers = 96;
  Layer layer(options, pool, rows, kLayers);
  ReadBound read(pool);
  Samples bound, kernel;
  sample(kernel, 16 * kLayers, options.seconds, [&](int turn) {
    if (turn % 4 == 0) read.turn(bound);
    kernel.take(double(Layer::state_bytes()), [&] { layer.run(turn / kLayers % 16, turn % kLayers); });
  });
  fmt::print("decode {:2} row{}: {:7.1f} us a layer, states {:5.1f} GB/s of {:5.1f} ({:3.0f}%)\n", rows, rows > 1 ? "s" : " ",
             kernel.median() * double(Layer::state_bytes()) * 1e6, 1e-9 / kernel.median(), 1e-9 / bound.median(),
             100 * bound.median() / kernel.median());
}

void prompt(const Options& options, kernels::cpu::ThreadPool& pool, int rows) {
  Layer layer(options, pool, rows, 1);
  const double operations = 2.0 * 3 * kDim * kDim * kHeads * rows;  // <S, k>, <S, q> and the fold
  Samples bound, kernel, conv;
  sample(kernel, 20, options.seconds, [&](int) {
    multiply_add_turn(pool, bound);
    kernel.take(operations, [&] { layer.run(0, 0); });
    conv.take(rows, [&] { layer.convolve(); });
  });
  fmt::print("prompt {:3} rows: {:7.1f} us a layer, {:5.1f} GFLOP/s of {:5.1f} ({:3.0f}%); convolution {:6.1f} us\n", rows,
             kernel.median() * operations * 1e6, 1e-9 / kernel.median(), 1e-9 / bound.median(), 100 * bound.median() / kernel.median(),
             conv.median() * rows * 1e6);
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
  fmt::print("delta_net_bench: {}, {} threads\n", lockstep::kernels::isa_name(options.isa), options.threads);
  for (int rows : {1, 2, 4, 9}) decode(options, pool, rows);
  for (int rows : {16, 64, 512}) prompt(options, pool, rows);
}
