#include "kernels/cpu/runtime/pages.h"

#include <sys/mman.h>

#include <cstdint>
#include <limits>

namespace lockstep::kernels::cpu {
namespace {
constexpr std::size_t kPage = 4096, kHugePage = std::size_t(2) << 20;
}

std::size_t Pages::rounded(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

Pages::Pages(std::size_t bytes) {
  if (bytes == 0 || bytes > std::numeric_limits<std::size_t>::max() / 2) return;
  const std::size_t slack = bytes >= kHugePage ? kHugePage : 0;
  const std::size_t mapped = rounded(bytes) + slack;
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return;
  base_ = base;
  mapped_ = mapped;
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  data_ = reinterpret_cast<std::byte*>(slack ? (address + kHugePage - 1) / kHugePage * kHugePage : address);
  // The tail stays on small pages, so that many matrices do not each round up to a huge one.
  if (slack) madvise(data_, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
}

Pages::~Pages() {
  if (base_) munmap(base_, mapped_);
}

}  // namespace lockstep::kernels::cpu
