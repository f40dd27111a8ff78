#include "kernels/cpu/runtime/pages.h"

#include <sys/mman.h>

#include <cstdint>
#include <limits>
#include <mutex>

namespace lockstep::kernels::cpu {
namespace {
constexpr std::size_t kPage = 4096, kHugePage = std::size_t(2) << 20;
constexpr std::size_t kSharedBytes = std::size_t(64) << 20;  // only what is touched becomes resident
std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }
}  // namespace

struct Pages::Region {
  void* base = MAP_FAILED;
  std::size_t mapped = 0, bytes = 0, used = 0;
  std::byte* begin = nullptr;  // on a huge page's border where there is one

  explicit Region(std::size_t bytes_) : bytes(bytes_) {
    const std::size_t slack = bytes >= kHugePage ? kHugePage : 0;
    mapped = round_up(bytes, kPage) + slack;
    base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return;
    const auto address = reinterpret_cast<std::uintptr_t>(base);
    begin = reinterpret_cast<std::byte*>(slack ? round_up(address, kHugePage) : address);
    if (slack) madvise(begin, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() {
    if (base != MAP_FAILED) munmap(base, mapped);
  }
};

Pages::Pages(std::size_t bytes) {
  if (bytes == 0 || bytes > std::numeric_limits<std::size_t>::max() / 2) return;
  region_ = std::make_shared<Region>(bytes);
  data_ = region_->begin;
}

Pages Pages::shared(std::size_t bytes) {
  if (bytes > kSharedBytes / 4) return Pages(bytes);
  static std::mutex mutex;
  static std::weak_ptr<Region> current;  // the region new pieces come from, while one of its pieces lives
  const std::lock_guard lock(mutex);
  auto region = current.lock();
  if (!region || region->bytes - region->used < rounded(bytes)) {
    region = std::make_shared<Region>(kSharedBytes);
    current = region;
  }
  Pages p;
  if (!region->begin) return p;
  p.data_ = region->begin + region->used;
  region->used += rounded(bytes);
  p.region_ = std::move(region);
  return p;
}

}  // namespace lockstep::kernels::cpu
