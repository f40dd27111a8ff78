#include "prompt_cache/identity.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/sha256.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shards.h"

namespace lockstep::prompt_cache {
namespace {

constexpr std::size_t kPiece = std::size_t(16) << 20;
constexpr int kFormat = 1;  // of the files (state_file.h)

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

Result<std::string> file_hash(const std::filesystem::path& path, int threads) {
  LOCKSTEP_ASSIGN(const auto file, checkpoint::MappedFile::open(path));
  std::vector<std::array<std::uint8_t, 32>> pieces((file->size() + kPiece - 1) / kPiece);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i; (i = next++) < pieces.size();) {
      const std::span<const std::byte> piece(file->data() + i * kPiece, std::min(kPiece, file->size() - i * kPiece));
      Sha256 hash;
      hash.update(piece);
      pieces[i] = hash.digest();
      file->drop(piece.data(), piece.size());
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < std::min(threads, int(pieces.size())); t++) others.emplace_back(work);
  work();
  for (std::thread& t : others) t.join();
  Sha256 all;
  all.update(std::as_bytes(std::span(pieces)));
  return all.hex();
}

Result<std::string> identity_lines(const std::filesystem::path& checkpoint, std::string_view isa, const kernels::StateLayout& layout, int threads) {
  const auto begin = std::chrono::steady_clock::now();
  LOCKSTEP_ASSIGN(checkpoint::Shards shards, checkpoint::find_shards(checkpoint));
  std::sort(shards.files.begin(), shards.files.end());
  shards.files.insert(shards.files.begin(), checkpoint / "config.json");
  Sha256 weights;
  for (const auto& path : shards.files) {
    LOCKSTEP_ASSIGN(const std::string hash, file_hash(path, threads));
    weights.update(bytes_of(hash));
  }
  LOCKSTEP_ASSIGN(const std::string program, file_hash("/proc/self/exe", threads));
  spdlog::info("prompt cache: weights hashed in {:.1f} s", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return fmt::format("format {}\nweights {}\nprogram {}\nbackend cpu\ndevice {}\nlayout {} {} {} {} {}\n", kFormat, weights.hex(), program, isa,
                     layout.page_tokens, layout.page_bytes, layout.recurrent_bytes, layout.snapshot_fixed_bytes, layout.snapshot_row_bytes);
}

}  // namespace lockstep::prompt_cache
