// A safetensors file, memory-mapped and bounds-checked (models.md 8.1).
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "base/tensor.h"

namespace lockstep::checkpoint {

/// Read-only mapping of a file. drop() gives pages of a range back to the kernel (they stay valid, read again from the file).
class MappedFile {
 public:
  static Result<std::shared_ptr<MappedFile>> open(const std::filesystem::path& path);
  ~MappedFile();
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  void drop(const std::byte* begin, std::size_t bytes) const;

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

struct SafetensorsFile {
  std::shared_ptr<MappedFile> file;
  std::map<std::string, TensorView> tensors;         // name -> view into the mapping
  std::map<std::string, std::string> metadata;       // __metadata__
};

/// Checks everything models.md 8.1 lists before any tensor is returned; memory used is bounded by the header's length, which is bounded by
/// the file's and by 100,000,000. Errors name the file and the tensor.
Result<SafetensorsFile> open_safetensors(const std::filesystem::path& path);
/// The parser alone, over bytes in memory (fuzzing): views point into `bytes`.
Result<std::map<std::string, TensorView>> parse_safetensors(std::span<const std::byte> bytes, const std::string& file_name,
                                                            std::map<std::string, std::string>* metadata);

}  // namespace lockstep::checkpoint
