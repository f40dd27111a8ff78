// The folder of shared checkpoints and oracles, and scratch folders.
#pragma once
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace lockstep::testing {

/// LOCKSTEP_FIXTURES, else ../shared beside the sources; empty where neither is a folder (a test then skips, in words).
inline std::filesystem::path fixtures() {
  const char* set = std::getenv("LOCKSTEP_FIXTURES");
  std::filesystem::path folder = set ? set : LOCKSTEP_SOURCE_DIR "/../shared";
  std::error_code error;
  return std::filesystem::is_directory(folder, error) ? folder : std::filesystem::path{};
}

/// A checkpoint or reference output by name: bundled in the repository, else among the fixtures.
inline std::filesystem::path bundled_or_fixture(const std::filesystem::path& bundled, const std::filesystem::path& other) {
  const std::filesystem::path here = std::filesystem::path(LOCKSTEP_SOURCE_DIR) / bundled;
  return std::filesystem::exists(here) ? here : fixtures() / other;
}
inline std::filesystem::path checkpoint(const std::string& name) {
  return bundled_or_fixture(std::filesystem::path("models") / name, std::filesystem::path("checkpoints") / name);
}
inline std::filesystem::path oracle(const std::string& file) {
  return bundled_or_fixture(std::filesystem::path("tests/oracles") / file, std::filesystem::path("oracles") / file);
}

/// A checkpoint's name as part of a test's.
inline std::string test_name(std::string checkpoint) {
  std::replace(checkpoint.begin(), checkpoint.end(), '-', '_');
  return checkpoint;
}

/// In a gtest body: a missing fixture is a printed skip, a failure where LOCKSTEP_REQUIRE_FIXTURES is set.
#define LOCKSTEP_NEED_FIXTURE(path)                                                          \
  do {                                                                                       \
    if (!std::filesystem::exists(path)) {                                                    \
      if (std::getenv("LOCKSTEP_REQUIRE_FIXTURES")) FAIL() << "fixture missing: " << (path); \
      GTEST_SKIP() << "fixture missing: " << (path);                                         \
    }                                                                                        \
  } while (0)

/// A folder of its own, removed at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep_test_XXXXXX").string();
    path_ = ::mkdtemp(name.data()) ? name : "";
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, std::string_view text) const {
    std::ofstream(path_ / name, std::ios::binary).write(text.data(), std::streamsize(text.size()));
  }

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep::testing
