#include "prompt_cache/cache_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

#include "prompt_cache/state_file.h"

namespace lockstep::prompt_cache {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kFirstLine = "lockstep prompt cache\n";
constexpr const char *kIdentity = "identity", *kIdentityTemporary = "identity.tmp", *kLock = "lock";

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Synced, unlike states: a torn one has no hash that would tell.
bool write_text(const fs::path& path, std::string_view text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return false;
  const bool written = ::write(file, text.data(), text.size()) == ssize_t(text.size()) && ::fsync(file) == 0;
  return ::close(file) == 0 && written;
}

/// Names of the lines that differ, for the log.
std::string changes(const std::string& before, const std::string& now) {
  std::istringstream a(before), b(now);
  std::vector<std::string> names;
  for (std::string x, y; std::getline(b, y);) {
    if (!std::getline(a, x)) x.clear();
    if (x != y) names.push_back(y.substr(0, y.find(' ')));
  }
  return names.empty() ? "format" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Error CacheFolder::refused(const std::string& why) const {
  return {ErrorCode::kInvalidArgument, fmt::format("--prompt-cache-dir {}: {}", path_.string(), why), "prompt-cache-dir"};
}

CacheFolder::CacheFolder(CacheFolder&& other) noexcept : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}

CacheFolder::~CacheFolder() {
  if (lock_ >= 0) ::close(lock_);
}

Result<CacheFolder> CacheFolder::open(const fs::path& path, const IdentityOf& identity) {
  CacheFolder folder(path);
  LOCKSTEP_TRY(folder.prepare(identity));
  return folder;
}

Status CacheFolder::prepare(const IdentityOf& identity) {
  std::error_code error;
  if (path_.has_parent_path()) fs::create_directories(path_.parent_path(), error);
  LOCKSTEP_TRY(make(path_));
  LOCKSTEP_TRY(check_ours());
  LOCKSTEP_TRY(lock());
  LOCKSTEP_ASSIGN(const std::string lines, identity());
  const std::string now = std::string(kFirstLine) + lines, before = read_text(path_ / kIdentity);
  if (!before.empty() && before != now) {
    spdlog::warn("prompt cache in {}: kept states are dropped, they are of another {}", path_.string(), changes(before, now));
    remove_files(true);
  }
  if (before != now) {
    const fs::path temporary = path_ / kIdentityTemporary;
    if (!write_text(temporary, now)) return refused(fmt::format("cannot be written: {}", std::strerror(errno)));
    if (::rename(temporary.c_str(), (path_ / kIdentity).c_str()) != 0) return refused(std::strerror(errno));
  }
  for (const char* subfolder : {"states", "pages"}) LOCKSTEP_TRY(make(path_ / subfolder));
  remove_files(false);
  return {};
}

// Prompts are private: what is made is for this user alone. A folder that was there before keeps its mode, its subfolders are closed.
Status CacheFolder::make(const fs::path& folder) const {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return refused(fmt::format("cannot be created: {}", std::strerror(errno)));
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0) return refused(std::strerror(errno));
  std::error_code error;
  const bool is_folder = folder == path_ ? fs::is_directory(folder, error) : S_ISDIR(info.st_mode);  // a link may lead to it, not out of it
  if (!is_folder) return refused(folder == path_ ? "is not a folder" : folder.filename().string() + " in it is not a folder");
  if (folder != path_ && ::chmod(folder.c_str(), 0700) != 0) return refused(std::strerror(errno));
  if (::access(folder.c_str(), R_OK | W_OK | X_OK) != 0) return refused(fmt::format("cannot be written: {}", std::strerror(errno)));
  return {};
}

Status CacheFolder::check_ours() const {
  std::error_code error;
  if (fs::exists(path_ / kIdentity, error)) {
    if (read_text(path_ / kIdentity).starts_with(kFirstLine)) return {};
    return refused("its file identity is not that of a prompt cache; name an empty folder");
  }
  for (auto it = fs::directory_iterator(path_, error); !error && it != fs::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename();  // a first start may have been cut off between lock and identity
    if (name != kLock && name != kIdentityTemporary) return refused("is not empty and not a prompt cache; name an empty folder");
  }
  if (error) return refused(error.message());
  return {};
}

Status CacheFolder::lock() {
  lock_ = ::open((path_ / kLock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock_ < 0) return refused(fmt::format("cannot be written: {}", std::strerror(errno)));
  if (::flock(lock_, LOCK_EX | LOCK_NB) == 0) return {};
  return refused(errno == EWOULDBLOCK ? "another server uses it; each needs a folder of its own" : std::strerror(errno));
}

std::map<std::string, std::size_t> CacheFolder::list(const char* subfolder) const {
  std::map<std::string, std::size_t> files;
  std::error_code error;
  for (auto it = fs::directory_iterator(path_ / subfolder, error); !error && it != fs::directory_iterator(); it.increment(error)) {
    std::error_code ignored;
    const std::string name = it->path().filename();
    if (is_name(name) && fs::is_regular_file(it->symlink_status(ignored))) files.emplace(name, it->file_size(ignored));
  }
  return files;
}

// Only names of this format are ever deleted; a file that someone else put there stays. Not all: what a cut-off write left.
void CacheFolder::remove_files(bool all) const {
  for (const char* subfolder : {"states", "pages"}) {
    std::error_code error, ignored;
    std::vector<fs::path> doomed;
    for (auto it = fs::directory_iterator(path_ / subfolder, error); !error && it != fs::directory_iterator(); it.increment(error)) {
      std::string name = it->path().filename();
      const bool temporary = name.ends_with(kTemporary);
      if (temporary) name.resize(name.size() - kTemporary.size());
      if (is_name(name) && (all || temporary) && fs::is_regular_file(it->symlink_status(ignored))) doomed.push_back(it->path());
    }
    for (const fs::path& path : doomed) fs::remove(path, ignored);
  }
}

}  // namespace lockstep::prompt_cache
