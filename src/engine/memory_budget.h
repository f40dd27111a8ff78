// What this process may use of the machine, where no flag says: cores of its affinity mask, memory of the system and of its cgroup.
#pragma once
#include <cstddef>

namespace lockstep::engine {

int usable_cores();
/// 90 percent of what is available now (MemAvailable, and what the cgroup leaves). Speed may depend on it, replies never do.
std::size_t available_memory_bytes();

}  // namespace lockstep::engine
