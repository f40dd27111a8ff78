// What the commands share: the model's folder, engine options, errors and the progress line.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cli/commands.h"

namespace lockstep::cli {
namespace fs = std::filesystem;

Result<fs::path> model_folder(const std::string& given) {
  std::error_code ec;
  if (!given.empty()) {
    if (fs::is_directory(given, ec)) return fs::path(given);
    const char* hint = given.find(' ') == given.npos ? "" : "; with the bundled model: lockstep run \"\" \"PROMPT\"";
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} is not a folder; a checkpoint is a folder with config.json and *.safetensors{}", given, hint), given};
  }
  if (const char* set = std::getenv("LOCKSTEP_DEFAULT_MODEL"); set && *set) {
    if (fs::is_directory(set, ec)) return fs::path(set);
    return Error{ErrorCode::kNotFound, fmt::format("LOCKSTEP_DEFAULT_MODEL is {}, which is not a folder", set), "LOCKSTEP_DEFAULT_MODEL"};
  }
  constexpr std::string_view kBundled = "models/tiny-qwen3_5-mlx-4bit";
  for (fs::path folder = fs::read_symlink("/proc/self/exe", ec).parent_path(); folder.has_relative_path(); folder = folder.parent_path())
    if (fs::exists(folder / kBundled / "config.json", ec)) return folder / kBundled;
  return Error{ErrorCode::kNotFound,
               fmt::format("no folder was given, LOCKSTEP_DEFAULT_MODEL is not set, and there is no {} above the program", kBundled),
               "DIR"};
}

Result<engine::EngineOptions> engine_options(const Options& options) {
  constexpr double kGib = 1073741824.0;
  engine::EngineOptions out;
  LOCKSTEP_ASSIGN(out.folder, model_folder(options.folder));
  out.context = options.context;
  out.threads = options.threads;
  out.parallel = options.parallel;
  out.max_queue = std::size_t(options.max_queue);
  out.memory_bytes = std::size_t(options.memory_gib * kGib);
  if (options.prompt_cache_gib) out.prompt_cache_bytes = std::size_t(*options.prompt_cache_gib * kGib);
  out.prompt_cache_dir = options.prompt_cache_dir;
  if (options.prompt_cache_disk_gib) out.prompt_cache_disk_bytes = std::size_t(*options.prompt_cache_disk_gib * kGib);
  if (!options.isa.empty()) {
    out.isa = kernels::isa_from_name(options.isa);
    const auto have = kernels::available_isas();
    if (std::find(have.begin(), have.end(), *out.isa) == have.end()) {
      std::vector<std::string_view> names;
      for (kernels::Isa isa : have) names.push_back(kernels::isa_name(isa));
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("this machine does not have {}; it has {}", options.isa, fmt::join(names, ", ")), "isa"};
    }
  }
  out.progress = loading_progress();
  return out;
}

int fail(const Error& error) {
  end_progress();
  std::fputs(fmt::format("lockstep: {}\n", error.message).c_str(), stderr);
  return kExitFailed;
}

bool is_terminal(int descriptor) { return ::isatty(descriptor) == 1; }

std::function<void(double, const std::string&)> loading_progress() {
  if (!is_terminal(2)) return {};
  return [last = -1](double fraction, const std::string& what) mutable {
    const int percent = int(fraction * 100);
    if (percent == last) return;
    last = percent;
    constexpr int kWidth = 30;
    const int full = percent * kWidth / 100;
    std::fputs(fmt::format("\r\x1b[Kloading {:>3}% [{}{}] {}", percent, std::string(std::size_t(full), '='),
                           std::string(std::size_t(kWidth - full), ' '), what)
                   .c_str(),
               stderr);
    std::fflush(stderr);
  };
}

void end_progress() {
  if (!is_terminal(2)) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

}  // namespace lockstep::cli
