// The folder of a disk tier: one server at a time, nothing in it but what this program made, all dropped when its identity changes.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "base/result.h"

namespace lockstep::prompt_cache {

/// Lines "NAME VALUE" that states depend on besides their tokens. Costs time (hashes), so it is asked for when the folder is held.
using IdentityOf = std::function<Result<std::string>()>;

class CacheFolder {
 public:
  /// Creates the folder where it is not there. Refused, naming flag and folder: one that cannot be created or written, that another server
  /// holds, or that has files and is no prompt cache. States of another identity are deleted, and so is what a write left half done.
  static Result<CacheFolder> open(const std::filesystem::path& path, const IdentityOf& identity);
  ~CacheFolder();
  CacheFolder(CacheFolder&& other) noexcept;
  CacheFolder& operator=(CacheFolder&&) = delete;

  std::filesystem::path state(const std::string& name) const { return path_ / "states" / name; }
  std::filesystem::path page(const std::string& name) const { return path_ / "pages" / name; }
  /// Name and size of the files of this format in a subfolder.
  std::map<std::string, std::size_t> states() const { return list("states"); }
  std::map<std::string, std::size_t> pages() const { return list("pages"); }

 private:
  explicit CacheFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::map<std::string, std::size_t> list(const char* subfolder) const;
  Status prepare(const IdentityOf& identity);
  Status check_ours() const;
  Status lock();
  Status make(const std::filesystem::path& folder) const;
  void remove_files(bool all) const;
  Error refused(const std::string& why) const;

  std::filesystem::path path_;
  int lock_ = -1;
};

}  // namespace lockstep::prompt_cache
