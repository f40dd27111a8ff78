#include "engine/memory_budget.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace lockstep::engine {
namespace {

// A number of the first line of a small kernel file; `none` where the file or the number is not there ("max").
std::size_t read_number(const char* path, std::size_t none) {
  std::ifstream file(path);
  std::size_t n = 0;
  return file >> n ? n : none;
}

std::size_t mem_available() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  for (std::size_t kib; file >> key >> kib; std::getline(file, unit))
    if (key == "MemAvailable:") return kib * 1024;
  return std::size_t(4) << 30;
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

std::size_t available_memory_bytes() {
  constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  const std::size_t limit = read_number("/sys/fs/cgroup/memory.max", kNone), used = read_number("/sys/fs/cgroup/memory.current", 0);
  std::size_t available = mem_available();
  if (limit != kNone) available = std::min(available, limit > used ? limit - used : 0);
  return available / 10 * 9;
}

}  // namespace lockstep::engine
