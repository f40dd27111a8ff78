#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "checkpoint/safetensors.h"

namespace lockstep::checkpoint {

Result<std::shared_ptr<MappedFile>> MappedFile::open(const std::filesystem::path& path) {
  const std::string name = path.string();
  const auto failed = [&](const char* what) { return Error{ErrorCode::kIo, name + ": " + what, name}; };
  // O_NONBLOCK: a pipe put in the file's place must not hold the loader.
  const int fd = ::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Error{errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, name + ": " + std::strerror(errno), name};
  struct Closer {
    int fd;
    ~Closer() { ::close(fd); }  // the mapping stays
  } closer{fd};
  struct stat info {};
  if (::fstat(fd, &info) != 0) return failed(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return failed("is not a regular file");
  auto file = std::shared_ptr<MappedFile>(new MappedFile);
  if (info.st_size == 0) return file;  // nothing to map; the parser says that it is too short
  void* data = ::mmap(nullptr, std::size_t(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) return failed(std::strerror(errno));
  file->data_ = static_cast<const std::byte*>(data);
  file->size_ = std::size_t(info.st_size);
  return file;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::drop(const std::byte* begin, std::size_t bytes) const {
  if (!data_ || begin < data_ || begin > data_ + size_ || bytes > std::size_t(data_ + size_ - begin)) return;
  const auto page = std::uintptr_t(::sysconf(_SC_PAGESIZE));
  // Whole pages inside the range: a page shared with a neighbour that is in use stays.
  const std::uintptr_t first = (std::uintptr_t(begin) + page - 1) / page * page, last = (std::uintptr_t(begin) + bytes) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace lockstep::checkpoint
