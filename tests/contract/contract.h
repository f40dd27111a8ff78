// Harness of the kernel contract (EXACTNESS section 4): what an operation promises, held against every instruction set of this machine.
// Plain code without a test framework, so that `lockstep contract` runs the same suite a build's tests run.
//
// A case is a static object: {operation, gate, function}. It runs once for each available instruction set, or once in all. A control is a
// planted failure (a kernel that drops a key, swaps a sum, reads one row too far) run through the same comparison: it must go red, and
// one that passes is a missed control, as bad as a failure.
//
//   const Case accuracy{"rms_norm", Gate::kAccuracy, [](Check& check) { ... check.near(...) ... }};
//   const Control drops_last{"rms_norm", Gate::kAccuracy, "drops the last element", [](Check& check) { ... }};
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/bfloat16.h"
#include "kernels/isa.h"

namespace lockstep::contract {

enum class Gate { kAccuracy, kRows, kRepeat, kEdges, kIsas };
std::string_view gate_name(Gate gate);  // "accuracy", "rows", "repeat", "edges", "isas"

enum class Scope { kEachIsa, kOnce };  // kOnce: what does not depend on the set, or what compares the sets

/// Random values of one case: the seed is printed each run and mixed with the case's name, so a filtered run draws the same values.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {  // splitmix64
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
  }
  double uniform() { return double(bits() >> 11) * 0x1p-53; }  // [0, 1)
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  int integer(int low, int high) { return low + int(bits() % std::uint64_t(high - low + 1)); }  // both ends included
  float normal(double sigma = 1) {
    double u = 0;
    while (u == 0) u = uniform();
    return float(sigma * std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * uniform()));
  }
  /// A normal value times 2^[-octaves, octaves]: wide dynamic range.
  float wide(double octaves) { return normal() * float(std::exp2(uniform(-octaves, octaves))); }
  std::vector<float> normals(std::size_t n, double sigma = 1) {
    std::vector<float> x(n);
    for (float& v : x) v = normal(sigma);
    return x;
  }
  std::vector<bf16> bf16s(std::size_t n, double sigma = 1) {
    std::vector<bf16> x(n);
    for (bf16& v : x) v = to_bf16(normal(sigma));
    return x;
  }
  std::vector<bf16> wide_bf16s(std::size_t n, double octaves) {
    std::vector<bf16> x(n);
    for (bf16& v : x) v = to_bf16(wide(octaves));
    return x;
  }

 private:
  std::uint64_t state_;
};

/// What a case says its findings to. The first few failures keep their words, all are counted.
class Check {
 public:
  Check(kernels::Isa isa, std::uint64_t seed, std::vector<kernels::Isa> isas) : isa(isa), random(seed), isas(std::move(isas)) {}

  const kernels::Isa isa;                 // set under test; of a Scope::kOnce case the best one
  Random random;
  const std::vector<kernels::Isa> isas;   // sets of this run, slowest first: what Gate::kIsas compares

  void fail(std::string message);
  /// A difference that is understood, recorded and not (yet) ours to change.
  void known_finding(std::string message);
  bool that(bool holds, std::string_view what) {
    if (!holds) fail(std::string(what));
    return holds;
  }
  /// |got - want| <= bound; NaN equals NaN only, an infinity equals itself.
  bool near(double got, double want, double bound, std::string_view what, std::int64_t index = -1);
  /// Equal bit for bit, element by element; reports the first difference and how many there are.
  template <class T>
  bool equal_bits(std::span<const T> got, std::span<const T> want, std::string_view what) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (got.size() != want.size()) {
      fail(std::string(what) + ": sizes differ");
      return false;
    }
    std::int64_t first = -1, different = 0;
    for (std::size_t i = 0; i < got.size(); i++) {
      if (std::memcmp(&got[i], &want[i], sizeof(T)) == 0) continue;
      if (first < 0) first = std::int64_t(i);
      different++;
    }
    if (different) report_difference(what, first, different, std::int64_t(got.size()), text(got[first]), text(want[first]));
    return different == 0;
  }
  template <class T>
  bool equal_bits(const std::vector<T>& got, const std::vector<T>& want, std::string_view what) {
    return equal_bits(std::span<const T>(got), std::span<const T>(want), what);
  }

  std::int64_t failures() const { return failures_; }
  const std::vector<std::string>& messages() const { return messages_; }
  const std::vector<std::string>& findings() const { return findings_; }

 private:
  static std::string text(bf16 v);
  static std::string text(float v);
  static std::string text(double v);
  static std::string text(std::int32_t v) { return std::to_string(v); }
  static std::string text(std::uint8_t v) { return std::to_string(v); }
  void report_difference(std::string_view what, std::int64_t first, std::int64_t different, std::int64_t total, const std::string& got,
                         const std::string& want);

  std::int64_t failures_ = 0;
  std::vector<std::string> messages_, findings_;
};

using Function = void (*)(Check& check);

struct Case {
  Case(std::string operation, Gate gate, Function function, Scope scope = Scope::kEachIsa)
      : Case(std::move(operation), gate, "", function, scope) {}
  /// `name` tells cases of one operation and gate apart.
  Case(std::string operation, Gate gate, std::string name, Function function, Scope scope = Scope::kEachIsa);
};

/// `planted` says what is wrong with the kernel this control runs.
struct Control {
  Control(std::string operation, Gate gate, std::string planted, Function function, Scope scope = Scope::kEachIsa);
};

/// Poison for outputs that must be written and inputs that must not be read.
inline constexpr std::uint32_t kPoisonBits = 0x7fa5a5a5u;  // a NaN no kernel makes
inline float poison_float() { return std::bit_cast<float>(kPoisonBits); }
inline constexpr bf16 kPoisonBf16 = 0x7fa5;

/// Distance of neighbouring bf16 values around x: half of it is what one store may add.
inline double bf16_ulp(double x) {
  const double a = std::fabs(x);
  if (!(a >= 0x1p-126)) return 0x1p-126;  // the store flushes below
  return std::exp2(std::floor(std::log2(a)) - 7);
}

/// The suite. Arguments: --seed N (default: drawn), --filter TEXT (part of "operation gate name"), --isa NAME, --list, --verbose.
/// Prints one line per failure, then the summary line. 0: all pass and every control is red; 1: not; 2: an argument is wrong.
int run_contract(std::span<const std::string> args);

}  // namespace lockstep::contract
