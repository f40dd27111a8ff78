// Inputs of the tests as seeds for the fuzz targets.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

namespace lockstep::testing {

/// With LOCKSTEP_FUZZ_CORPUS set, keeps `bytes` as a file of its folder `target`; else does nothing.
inline void keep_seed(const char* target, const std::string& bytes) {
  const char* root = std::getenv("LOCKSTEP_FUZZ_CORPUS");
  if (!root || bytes.size() > 16384) return;
  const auto folder = std::filesystem::path(root) / target;
  std::filesystem::create_directories(folder);
  char name[24];
  std::snprintf(name, sizeof name, "%016zx", std::hash<std::string>{}(bytes));
  std::ofstream(folder / name, std::ios::binary) << bytes;
}

}  // namespace lockstep::testing
