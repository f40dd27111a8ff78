// Zeroed memory straight from the kernel, 64-byte aligned at least, on 2 MiB pages: weights and activations of a matmul are read in long
// streams, and on 4 KiB pages a quantised decode step takes a third longer.
#pragma once
#include <cstddef>
#include <memory>

namespace lockstep::kernels::cpu {

class Pages {
 public:
  Pages() = default;
  /// data() is nullptr where the system has no room. Whole 2 MiB parts lie on huge pages, the rest on small ones.
  explicit Pages(std::size_t bytes);
  /// From a region shared with other calls' memory, so that matrices smaller than a huge page lie on one as well. The region goes back to the
  /// system with the last of them.
  static Pages shared(std::size_t bytes);
  std::byte* data() const { return data_; }
  /// What `bytes` take: whole cache lines.
  static std::size_t rounded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

 private:
  struct Region;
  std::shared_ptr<Region> region_;
  std::byte* data_ = nullptr;
};

}  // namespace lockstep::kernels::cpu
