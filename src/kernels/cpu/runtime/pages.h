// Zeroed memory straight from the kernel, 64-byte aligned at least, on 2 MiB pages where a whole one fits: weights and activations of a matmul
// are read in long streams, and with 4 KiB pages the page walks show.
#pragma once
#include <cstddef>
#include <utility>

namespace lockstep::kernels::cpu {

class Pages {
 public:
  Pages() = default;
  /// data() is nullptr where the system has no room.
  explicit Pages(std::size_t bytes);
  Pages(Pages&& other) noexcept { swap(other); }
  Pages& operator=(Pages&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Pages();
  std::byte* data() const { return data_; }
  /// What `bytes` take in resident memory once all are touched.
  static std::size_t rounded(std::size_t bytes);

 private:
  void swap(Pages& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(mapped_, other.mapped_);
    std::swap(data_, other.data_);
  }
  void* base_ = nullptr;
  std::size_t mapped_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace lockstep::kernels::cpu
