// Commands and flags: one table that parses, prints help and docs/cli.md, and suggests the right flag for a wrong one.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

/// Exit codes of every command.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  // the command could not do its work; the reason is on standard error
inline constexpr int kExitUsage = 2;   // a command, flag or value is wrong

enum class Command { kNone, kServe, kRun, kInfo, kBench, kContract, kVersion };

/// Values of all flags; a command reads its own.
struct Options {
  std::string folder;  // empty: the bundled model
  std::string prompt;
  bool help = false;

  // Model and machine.
  std::int64_t context = 0;
  int threads = 0;
  std::string isa;
  double memory_gib = 0;
  std::optional<double> prompt_cache_gib, prompt_cache_disk_gib;
  std::string prompt_cache_dir;
  int parallel = 0;  // by memory

  // serve
  std::string host = "127.0.0.1";
  int port = 8080;
  std::string name;
  std::optional<std::string> api_key;
  std::string api_key_file;
  std::string cors_origin;
  std::int64_t max_queue = 256;
  int http_threads = 2;
  std::string log_level = "info";

  // run
  std::string system;
  std::optional<double> temperature, top_p, min_p;
  std::optional<int> top_k;
  std::optional<std::uint64_t> seed;
  std::int64_t max_tokens = 0;
  std::string thinking;
  bool raw = false, stats = false;

  // info, bench
  bool json = false;
  int bench_prompt = 512, bench_tokens = 64;
  bool bounds_only = false;

  // contract
  std::string contract_seed, filter;
  bool list = false, verbose = false;
};

struct Parsed {
  Command command = Command::kNone;
  Options options;
  std::optional<int> exit_code;  // set: print `text` (to standard error where the code is not 0) and end
  std::string text;
};

/// `args` without the program's name.
Parsed parse(std::span<const std::string> args);

/// What `lockstep COMMAND --help` prints; Command::kNone: what `lockstep --help` prints.
std::string help_text(Command command);
/// The page docs/cli.md.
std::string cli_markdown();

/// The candidate nearest to a misspelled word by edit distance, empty where none is near.
std::string nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace lockstep::cli
