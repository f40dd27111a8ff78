// lockstep: see flags.h for commands, flags and exit codes.
#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <exception>

#include "cli/commands.h"

namespace lockstep::cli {
namespace {

int version() {
  std::string isas;
  for (kernels::Isa isa : kernels::available_isas()) isas += fmt::format(" {}", kernels::isa_name(isa));
  fmt::print("lockstep {} ({} {}; this machine has{})\n", LOCKSTEP_VERSION,
#if defined(__clang__)
             "clang", __clang_major__,
#else
             "gcc", __GNUC__,
#endif
             isas);
  return kExitOk;
}

int dispatch(const Parsed& parsed) {
  switch (parsed.command) {
    case Command::kServe:
      return serve(parsed.options);
    case Command::kRun:
      return run(parsed.options);
    case Command::kInfo:
      return info(parsed.options);
    case Command::kBench:
      return bench(parsed.options);
    case Command::kContract:
      return contract(parsed.options);
    case Command::kVersion:
      return version();
    case Command::kNone:
      break;
  }
  return kExitUsage;
}

}  // namespace
}  // namespace lockstep::cli

int main(int argc, char** argv) {
  using namespace lockstep::cli;
  try {
    spdlog::set_default_logger(spdlog::stderr_color_mt("lockstep"));  // standard output is for results
    const std::vector<std::string> args(argv + 1, argv + argc);
    const Parsed parsed = parse(args);
    if (!parsed.exit_code) return dispatch(parsed);
    std::fputs(parsed.text.c_str(), *parsed.exit_code == kExitOk ? stdout : stderr);
    return *parsed.exit_code;
  } catch (const std::exception& error) {  // memory, or a terminal that went away
    std::fputs(fmt::format("lockstep: {}\n", error.what()).c_str(), stderr);
    return kExitFailed;
  }
}
