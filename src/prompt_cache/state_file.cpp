#include "prompt_cache/state_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lockstep::prompt_cache {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kMagic = "LSSTATE1";
constexpr std::size_t kHashBytes = 32, kHeaderBytes = 8 + 2 * sizeof(std::uint64_t), kPiece = std::size_t(1) << 20;

template <class T>
std::span<const std::byte> bytes_of(const T& range) {
  return std::as_bytes(std::span(range));
}

/// A file that is read from its start to its end, hashed on the way.
class InFile {
 public:
  explicit InFile(const fs::path& path) : name_(path.string()) {
    file_ = ::open(name_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat info {};
    if (file_ >= 0 && ::fstat(file_, &info) == 0 && S_ISREG(info.st_mode)) size_ = std::size_t(info.st_size);
  }
  ~InFile() {
    if (file_ >= 0) ::close(file_);
  }
  InFile(const InFile&) = delete;
  InFile& operator=(const InFile&) = delete;

  std::size_t size() const { return size_; }
  Error broken(const char* what) const { return {ErrorCode::kCorruptFile, fmt::format("{}: {}", name_, what), name_}; }
  void add_to_hash(std::string_view text) { hash_.update(bytes_of(text)); }
  Status read(std::span<std::byte> bytes) {
    LOCKSTEP_TRY(get(bytes));
    hash_.update(bytes);
    return {};
  }
  /// The rest of the file is the hash of what was read.
  Status check() {
    const auto expected = hash_.digest();
    std::array<std::uint8_t, kHashBytes> found{};
    LOCKSTEP_TRY(get(std::as_writable_bytes(std::span(found))));
    if (found != expected) return broken("the hash is wrong");
    return {};
  }

 private:
  Status get(std::span<std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = file_ < 0 ? -1 : ::read(file_, bytes.data(), std::min(bytes.size(), kPiece * 16));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Error{ErrorCode::kIo, fmt::format("{}: {}", name_, std::strerror(errno)), name_};
      if (n == 0) return broken("the file is too short");
      bytes = bytes.subspan(std::size_t(n));
    }
    return {};
  }

  std::string name_;
  int file_ = -1;
  std::size_t size_ = 0;
  Sha256 hash_;
};

struct Header {
  char magic[8];
  std::uint64_t salt_bytes, tokens;
};
static_assert(sizeof(Header) == kHeaderBytes);

Result<Key> read_key(InFile& file) {
  Header header{};
  LOCKSTEP_TRY(file.read(std::as_writable_bytes(std::span(&header, 1))));
  if (std::string_view(header.magic, sizeof header.magic) != kMagic) return file.broken("not a kept state of this version");
  // Both before anything of their size is allocated.
  if (header.salt_bytes > file.size() || header.tokens > file.size() / sizeof(std::int32_t) || header.tokens == 0)
    return file.broken("the file is too short");
  std::string salt(header.salt_bytes, '\0');
  std::vector<std::int32_t> tokens(header.tokens);
  LOCKSTEP_TRY(file.read(std::as_writable_bytes(std::span(salt))));
  LOCKSTEP_TRY(file.read(std::as_writable_bytes(std::span(tokens))));
  return Key(salt, tokens);
}

}  // namespace

Names names_of(std::string_view salt, std::span<const std::int32_t> tokens, int page_tokens) {
  Names names;
  Sha256 hash;
  const std::uint64_t salt_bytes = salt.size();
  hash.update(bytes_of(std::span(&salt_bytes, 1)));
  hash.update(bytes_of(salt));
  std::size_t at = 0;
  if (page_tokens)
    for (const std::size_t page = std::size_t(page_tokens); at + page <= tokens.size(); at += page) {
      hash.update_ids(tokens.subspan(at, page));
      names.pages.push_back(hash.hex());
    }
  hash.update_ids(tokens.subspan(at));
  names.state = hash.hex();
  return names;
}

bool is_name(std::string_view file_name) {
  return file_name.size() == 64 && file_name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::size_t page_file_bytes(const kernels::StateLayout& layout) { return layout.page_bytes + kHashBytes; }

std::size_t recurrent_bytes(const kernels::StateLayout& layout, std::int64_t length) {
  return layout.recurrent_bytes ? layout.snapshot_bytes(int(length % 16)) : 0;  // a kept state is folded (EXACTNESS item 5)
}

int tail_tokens(const kernels::StateLayout& layout, std::int64_t length) {
  return layout.page_tokens ? int(length % layout.page_tokens) : 0;
}

std::size_t state_file_bytes(const kernels::StateLayout& layout, std::size_t salt_bytes, std::int64_t length) {
  return kHeaderBytes + salt_bytes + std::size_t(length) * sizeof(std::int32_t) + recurrent_bytes(layout, length) +
         (tail_tokens(layout, length) ? layout.page_bytes : 0) + kHashBytes;
}

OutFile::~OutFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(temporary_.c_str());
}

Error OutFile::failed(const char* what) const {
  return {ErrorCode::kIo, fmt::format("{}: {}: {}", path_.string(), what, std::strerror(errno)), path_.string()};
}

Status OutFile::open() {
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file_ < 0) return failed("cannot be created");
  return {};
}

Status OutFile::put(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("cannot be written");
    bytes = bytes.subspan(std::size_t(n));
  }
  return {};
}

Status OutFile::write(std::span<const std::byte> bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
    if (stop_) return Error{ErrorCode::kCancelled, path_.string() + ": given up", path_.string()};
    const auto piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
    hash_.update(piece);
    LOCKSTEP_TRY(put(piece));
  }
  return {};
}

Status OutFile::finish() {
  LOCKSTEP_TRY(put(bytes_of(hash_.digest())));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return failed("cannot be renamed");
  ::close(std::exchange(file_, -1));
  return {};
}

Status write_page(const fs::path& path, std::span<const std::byte> page, const std::atomic<bool>& stop) {
  OutFile file(path, stop);
  file.add_to_hash(path.filename().string());
  LOCKSTEP_TRY(file.open());
  LOCKSTEP_TRY(file.write(page));
  return file.finish();
}

Status write_state(const fs::path& path, const Key& key, std::span<const std::byte> recurrent, std::span<const std::byte> tail,
                   const std::atomic<bool>& stop) {
  Header header{{}, key.salt.size(), key.tokens.size()};
  std::copy(kMagic.begin(), kMagic.end(), header.magic);
  OutFile file(path, stop);
  LOCKSTEP_TRY(file.open());
  LOCKSTEP_TRY(file.write(bytes_of(std::span(&header, 1))));
  LOCKSTEP_TRY(file.write(bytes_of(key.salt)));
  LOCKSTEP_TRY(file.write(bytes_of(key.tokens)));
  LOCKSTEP_TRY(file.write(recurrent));
  LOCKSTEP_TRY(file.write(tail));
  return file.finish();
}

Result<Key> read_key(const fs::path& path, const kernels::StateLayout& layout) {
  InFile file(path);
  LOCKSTEP_ASSIGN(Key key, read_key(file));
  if (file.size() != state_file_bytes(layout, key.salt.size(), std::int64_t(key.tokens.size()))) return file.broken("the size is wrong");
  if (names_of(key.salt, key.tokens, 0).state != path.filename()) return file.broken("the name is not that of its tokens");
  return key;
}

Status read_page(const fs::path& path, std::span<std::byte> page) {
  InFile file(path);
  if (file.size() != page.size() + kHashBytes) return file.broken("the file is missing or its size is wrong");
  file.add_to_hash(path.filename().string());
  LOCKSTEP_TRY(file.read(page));
  return file.check();
}

Status read_state(const fs::path& path, const Key& key, std::span<std::byte> recurrent, std::span<std::byte> tail) {
  InFile file(path);
  LOCKSTEP_ASSIGN(const Key found, read_key(file));
  if (!(found == key)) return file.broken("it holds other tokens");
  if (file.size() != kHeaderBytes + key.salt.size() + key.tokens.size() * sizeof(std::int32_t) + recurrent.size() + tail.size() + kHashBytes)
    return file.broken("the size is wrong");
  LOCKSTEP_TRY(file.read(recurrent));
  LOCKSTEP_TRY(file.read(tail));
  return file.check();
}

}  // namespace lockstep::prompt_cache
