#include "unit/engine/recorder/allocation_recorder.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace lockstep::testing {
namespace {

struct Header {  // in front of every allocation
  std::size_t bytes;
  std::uint64_t recording;  // the one it was made in
};
static_assert(sizeof(Header) == 16);

std::atomic<const memory::Ledger*> watched{nullptr};
std::atomic<std::uint64_t> recording{0};
std::atomic<std::int64_t> blocks{0}, peak_blocks{0}, small{0}, peak_small{0}, over{0}, mappings{0};

void raise(std::atomic<std::int64_t>& most, std::int64_t value) {
  for (std::int64_t seen = most.load(); seen < value && !most.compare_exchange_weak(seen, value);) {
  }
}

// The ledger's lock is held while it formats a refusal, which allocates less than a block: so only blocks ask it.
void compare(const memory::Ledger* ledger) {
  const std::int64_t live = blocks.load();
  raise(peak_blocks, live);
  raise(over, live - std::int64_t(ledger->view().held_bytes));
}

std::size_t offset_of(std::size_t alignment) { return std::max(alignment, sizeof(Header)); }

void* take(std::size_t bytes, std::size_t alignment) {
  const std::size_t offset = offset_of(alignment);
  auto* raw = static_cast<std::byte*>(std::aligned_alloc(offset, (bytes + 2 * offset - 1) / offset * offset));
  if (!raw) throw std::bad_alloc();
  auto* header = reinterpret_cast<Header*>(raw + offset - sizeof(Header));
  const memory::Ledger* ledger = watched.load();
  *header = {bytes, ledger ? recording.load() : 0};
  if (ledger && bytes >= kBlock) {
    blocks += std::int64_t(bytes);
    compare(ledger);
  } else if (ledger) {
    raise(peak_small, small += std::int64_t(bytes));
  }
  return raw + offset;
}

void give(void* p, std::size_t alignment) {
  if (!p) return;
  auto* header = reinterpret_cast<Header*>(static_cast<std::byte*>(p) - sizeof(Header));
  const memory::Ledger* ledger = watched.load();
  if (ledger && header->recording == recording.load()) {
    if (header->bytes >= kBlock) {
      compare(ledger);  // still there, so it must still be held
      blocks -= std::int64_t(header->bytes);
    } else {
      small -= std::int64_t(header->bytes);
    }
  }
  std::free(static_cast<std::byte*>(p) - offset_of(alignment));
}

}  // namespace

void record(const memory::Ledger& ledger) {
  for (auto* counter : {&blocks, &peak_blocks, &small, &peak_small, &over, &mappings}) counter->store(0);
  recording++;
  watched = &ledger;
}

Recorded recorded() { return {blocks, peak_blocks, small, peak_small, over, mappings}; }

Recorded stop_recording() {
  watched = nullptr;
  return recorded();
}

}  // namespace lockstep::testing

namespace rec = lockstep::testing;
constexpr std::size_t kPlain = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
// The array and nothrow forms of the standard library call these.
void* operator new(std::size_t bytes) { return rec::take(bytes, kPlain); }
void* operator new(std::size_t bytes, std::align_val_t alignment) { return rec::take(bytes, std::size_t(alignment)); }
void operator delete(void* p) noexcept { rec::give(p, kPlain); }
void operator delete(void* p, std::size_t) noexcept { rec::give(p, kPlain); }
void operator delete(void* p, std::align_val_t alignment) noexcept { rec::give(p, std::size_t(alignment)); }
void operator delete(void* p, std::size_t, std::align_val_t alignment) noexcept { rec::give(p, std::size_t(alignment)); }

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // those have an mmap of their own
extern "C" void* mmap(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  if (rec::watched.load() && (flags & MAP_ANONYMOUS)) rec::mappings++;
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
#endif
