// Where checkpoints and reference outputs lie: bundled ones in the repository, the others in LOCKSTEP_FIXTURES (or ../shared beside it). A test
// without its fixture is a printed skip, or a failure where LOCKSTEP_REQUIRE_FIXTURES is set.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace lockstep::testing {

inline std::filesystem::path fixtures() {
  if (const char* folder = std::getenv("LOCKSTEP_FIXTURES")) return folder;
  return std::filesystem::path(LOCKSTEP_SOURCE_DIR) / ".." / "shared";
}

inline std::filesystem::path first_existing(const std::filesystem::path& bundled, const std::filesystem::path& other) {
  return std::filesystem::exists(bundled) ? bundled : other;
}
inline std::filesystem::path checkpoint(const std::string& name) {
  return first_existing(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "models" / name, fixtures() / "checkpoints" / name);
}
inline std::filesystem::path oracle(const std::string& file) {
  return first_existing(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests" / "oracles" / file, fixtures() / "oracles" / file);
}

#define LOCKSTEP_NEED_FIXTURE(path)                                                                          \
  do {                                                                                                       \
    if (!std::filesystem::exists(path)) {                                                                    \
      if (std::getenv("LOCKSTEP_REQUIRE_FIXTURES")) FAIL() << "fixture missing: " << (path);                 \
      GTEST_SKIP() << "fixture missing: " << (path);                                                         \
    }                                                                                                        \
  } while (0)

}  // namespace lockstep::testing
