// Files of kept states: their names, their format, written whole or not at all, read with every byte under a hash.
//
// By the prefix rule a full page of keys and values is a function of the tokens up to its end, so it is a file of its own, shared by every state
// that has this prefix. Numbers are little-endian.
//   pages/NAME   bytes of the page, SHA-256 over NAME and them; NAME: hex SHA-256 over the salt's length and bytes and the tokens up to its end
//   states/NAME  "LSSTATE1", bytes of the salt and tokens (64 bits each), salt, tokens, recurrent block, the last page where it is partly
//                filled (zeros past the state's end), SHA-256 over all of it; NAME: as a page's, over all tokens
#pragma once
#include <atomic>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "kernels/backend.h"
#include "prompt_cache/key.h"

namespace lockstep::prompt_cache {

/// File names of a state and of the full pages it needs.
struct Names {
  std::string state;
  std::vector<std::string> pages;
};
Names names_of(std::string_view salt, std::span<const std::int32_t> tokens, int page_tokens);
/// Whether a file name is one that this format makes (64 hex digits).
bool is_name(std::string_view file_name);

std::size_t page_file_bytes(const kernels::StateLayout& layout);
/// Of a state with its own parts; its full pages are apart.
std::size_t state_file_bytes(const kernels::StateLayout& layout, std::size_t salt_bytes, std::int64_t length);
/// Bytes of the recurrent block, and positions in a partly filled last page.
std::size_t recurrent_bytes(const kernels::StateLayout& layout, std::int64_t length);
int tail_tokens(const kernels::StateLayout& layout, std::int64_t length);

inline constexpr std::string_view kTemporary = ".tmp";  // ends the name of a file that is being written

/// A file that appears under its name when it is whole. Where it does not come to that, nothing is left of it.
class OutFile {
 public:
  /// `stop`: set by another thread to give up; write is then kCancelled.
  OutFile(std::filesystem::path path, const std::atomic<bool>& stop)
      : path_(std::move(path)), temporary_(path_.string() + std::string(kTemporary)), stop_(stop) {}
  ~OutFile();
  OutFile(const OutFile&) = delete;
  OutFile& operator=(const OutFile&) = delete;
  /// kIo names the file.
  Status open();
  Status write(std::span<const std::byte> bytes);
  /// Hashed but not written.
  void add_to_hash(std::string_view text) { hash_.update(std::as_bytes(std::span(text))); }
  /// The hash goes to the end, the file to its place.
  Status finish();

 private:
  Status put(std::span<const std::byte> bytes);
  Error failed(const char* what) const;
  std::filesystem::path path_, temporary_;
  const std::atomic<bool>& stop_;
  Sha256 hash_;
  int file_ = -1;
};

Status write_page(const std::filesystem::path& path, std::span<const std::byte> page, const std::atomic<bool>& stop);
/// tail: a page, empty where the last page is full.
Status write_state(const std::filesystem::path& path, const Key& key, std::span<const std::byte> recurrent, std::span<const std::byte> tail,
                   const std::atomic<bool>& stop);

/// The key of a state's file, checked against its name and size; what follows it is not read. kCorruptFile, kIo.
Result<Key> read_key(const std::filesystem::path& path, const kernels::StateLayout& layout);
/// Fills `page`; kCorruptFile where size, name and bytes do not belong together.
Status read_page(const std::filesystem::path& path, std::span<std::byte> page);
/// Fills `recurrent` and `tail` (sizes as the layout has them), every byte of the file checked.
Status read_state(const std::filesystem::path& path, const Key& key, std::span<std::byte> recurrent, std::span<std::byte> tail);

}  // namespace lockstep::prompt_cache
