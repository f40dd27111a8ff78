#include "contract/contract.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>
#include <random>
#include <set>
#include <tuple>

#include "kernels/cpu/runtime/thread_pool.h"

namespace lockstep::contract {
namespace {

struct Entry {
  std::string operation;
  Gate gate;
  std::string name;
  Function function;
  Scope scope;
  bool control;
};

std::vector<Entry>& entries() {
  static std::vector<Entry> all;
  return all;
}

std::string label(const Entry& e) {
  return fmt::format("{} {}{}{}", e.operation, gate_name(e.gate), e.control ? " control: " : e.name.empty() ? "" : ": ", e.name);
}

std::uint64_t case_seed(std::uint64_t seed, const std::string& label) {  // FNV-1a over the label, from the run's seed
  std::uint64_t h = 0xcbf29ce484222325ull ^ seed * 0x9E3779B97F4A7C15ull;
  for (unsigned char c : label) h = (h ^ c) * 0x100000001b3ull;
  return h;
}

struct Options {
  std::uint64_t seed = 0;
  std::string filter;
  std::optional<kernels::Isa> isa;
  bool list = false, verbose = false;
};

std::optional<Options> parse(std::span<const std::string> args) {
  Options o;
  std::random_device device;
  o.seed = (std::uint64_t(device()) << 32 | device()) >> 16;  // 48 bits: short enough to type again
  for (std::size_t i = 0; i < args.size(); i++) {
    const std::string& a = args[i];
    if (a == "--list" || a == "--verbose") {
      (a == "--list" ? o.list : o.verbose) = true;
      continue;
    }
    if (a != "--seed" && a != "--filter" && a != "--isa") {
      fmt::print(stderr, "contract: {} is not an argument; known are --seed N, --filter TEXT, --isa NAME, --list, --verbose\n", a);
      return std::nullopt;
    }
    if (i + 1 == args.size()) {
      fmt::print(stderr, "contract: {} needs a value\n", a);
      return std::nullopt;
    }
    const std::string& value = args[++i];
    if (a == "--filter") o.filter = value;
    if (a == "--seed") {
      const auto r = std::from_chars(value.data(), value.data() + value.size(), o.seed);
      if (r.ec != std::errc() || r.ptr != value.data() + value.size()) {
        fmt::print(stderr, "contract: --seed {} is not an unsigned number\n", value);
        return std::nullopt;
      }
    }
    if (a == "--isa") {
      o.isa = kernels::isa_from_name(value);
      const auto have = kernels::available_isas();
      if (!o.isa || std::find(have.begin(), have.end(), *o.isa) == have.end()) {
        std::string names;
        for (auto isa : have) names += fmt::format(" {}", kernels::isa_name(isa));
        fmt::print(stderr, "contract: --isa {} is not a set of this machine; it has{}\n", value, names);
        return std::nullopt;
      }
    }
  }
  return o;
}

/// A gate that cannot fail is a defect: every operation's gate needs a planted failure.
std::vector<std::string> gates_without_control() {
  std::set<std::pair<std::string, Gate>> controlled, open;
  for (const auto& e : entries())
    if (e.control) controlled.insert({e.operation, e.gate});
  for (const auto& e : entries())
    if (!controlled.contains({e.operation, e.gate})) open.insert({e.operation, e.gate});
  std::vector<std::string> names;
  for (const auto& [operation, gate] : open) names.push_back(fmt::format("{} {}", operation, gate_name(gate)));
  return names;
}

struct Tally {
  int pass = 0, fail = 0, findings = 0, red = 0, missed = 0;
  std::set<std::pair<std::string, kernels::Isa>> kernels;
};

void run_entry(const Entry& e, kernels::Isa isa, const std::vector<kernels::Isa>& isas, const Options& o, Tally& tally) {
  const std::string where = e.scope == Scope::kEachIsa ? fmt::format("{} [{}]", label(e), kernels::isa_name(isa)) : label(e);
  Check check(isa, case_seed(o.seed, label(e)), isas);
  const auto begin = std::chrono::steady_clock::now();
  e.function(check);
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  if (e.scope == Scope::kEachIsa)
    tally.kernels.insert({e.operation, isa});
  else
    for (auto i : isas) tally.kernels.insert({e.operation, i});
  const bool red = check.failures() > 0;
  const char* verdict = e.control ? (red ? "red as planted" : "MISSED") : (red ? "FAIL" : "pass");
  (e.control ? (red ? tally.red : tally.missed) : (red ? tally.fail : tally.pass))++;
  tally.findings += int(check.findings().size());
  const bool bad = red != e.control;
  if (bad || o.verbose) fmt::print("{} {} ({:.0f} ms)\n", verdict, where, ms);
  if (red && (bad || o.verbose)) {
    for (const auto& m : check.messages()) fmt::print("    {}\n", m);
    if (check.failures() > std::int64_t(check.messages().size())) fmt::print("    ... {} in all\n", check.failures());
  }
  for (const auto& m : check.findings()) fmt::print("known finding {}: {}\n", where, m);
  std::fflush(stdout);
}

}  // namespace

std::string_view gate_name(Gate gate) {
  switch (gate) {
    case Gate::kAccuracy:
      return "accuracy";
    case Gate::kRows:
      return "rows";
    case Gate::kRepeat:
      return "repeat";
    case Gate::kEdges:
      return "edges";
    case Gate::kIsas:
      return "isas";
  }
  return "?";
}

void Check::fail(std::string message) {
  constexpr std::size_t kKept = 6;
  failures_++;
  if (messages_.size() < kKept) messages_.push_back(std::move(message));
}
void Check::known_finding(std::string message) { findings_.push_back(std::move(message)); }

bool Check::near(double got, double want, double bound, std::string_view what, std::int64_t index) {
  const bool special = std::isnan(want) || std::isinf(want) || std::isnan(got) || std::isinf(got);
  const bool holds = special ? (std::isnan(want) ? std::isnan(got) : got == want) : std::fabs(got - want) <= bound;
  if (!holds)
    fail(fmt::format("{}{}: {:.9g} instead of {:.9g}, off by {:.3g}, bound {:.3g}", what, index >= 0 ? fmt::format("[{}]", index) : "", got,
                     want, std::fabs(got - want), bound));
  return holds;
}

void Check::report_difference(std::string_view what, std::int64_t first, std::int64_t different, std::int64_t total, const std::string& got,
                              const std::string& want) {
  fail(fmt::format("{}: {} of {} values differ, first at {}: {} instead of {}", what, different, total, first, got, want));
}
std::string Check::text(bf16 v) { return fmt::format("{:.9g} (0x{:04x})", to_float(v), v); }
std::string Check::text(float v) { return fmt::format("{:.9g} (0x{:08x})", v, std::bit_cast<std::uint32_t>(v)); }
std::string Check::text(double v) { return fmt::format("{:.17g}", v); }

Case::Case(std::string operation, Gate gate, std::string name, Function function, Scope scope) {
  entries().push_back({std::move(operation), gate, std::move(name), function, scope, false});
}
Control::Control(std::string operation, Gate gate, std::string planted, Function function, Scope scope) {
  entries().push_back({std::move(operation), gate, std::move(planted), function, scope, true});
}

int run_contract(std::span<const std::string> args) {
  const auto options = parse(args);
  if (!options) return 2;
  std::vector<Entry> chosen;
  for (const auto& e : entries())
    if (label(e).find(options->filter) != std::string::npos) chosen.push_back(e);
  std::stable_sort(chosen.begin(), chosen.end(), [](const Entry& a, const Entry& b) {  // link order must not show
    return std::tie(a.operation, a.gate, a.control, a.name) < std::tie(b.operation, b.gate, b.control, b.name);
  });
  if (options->list) {
    for (const auto& e : chosen) fmt::print("{}\n", label(e));
    return 0;
  }
  const auto isas = options->isa ? std::vector<kernels::Isa>{*options->isa} : kernels::available_isas();
  std::string names;
  for (auto isa : isas) names += fmt::format(" {}", kernels::isa_name(isa));
  fmt::print("contract: seed {}, instruction sets{}\n", options->seed, names);
  std::fflush(stdout);
  kernels::cpu::flush_denormals();
  Tally tally;
  for (const auto& e : chosen) {
    if (e.scope == Scope::kOnce)
      run_entry(e, isas.back(), isas, *options, tally);
    else
      for (auto isa : isas) run_entry(e, isa, isas, *options, tally);
  }
  if (chosen.empty()) {
    fmt::print(stderr, "contract: no case matches --filter {}\n", options->filter);
    return 2;
  }
  for (const auto& gate : gates_without_control()) {
    fmt::print("FAIL {}: no control shows that this gate can fail\n", gate);
    tally.fail++;
  }
  fmt::print("contract: {} kernels, {} pass, {} fail, {} known findings, {} controls red as planted, {} controls missed\n",
             tally.kernels.size(), tally.pass, tally.fail, tally.findings, tally.red, tally.missed);
  const int failed = tally.fail + tally.missed;
  fmt::print("{} passed, {} failed\n", tally.pass + tally.red, failed);
  return failed ? 1 : 0;
}

}  // namespace lockstep::contract
