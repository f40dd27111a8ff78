// What a kept state depends on besides its tokens and salt, as lines for a folder's identity: weights, program, kind of device, layout.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kernels/backend.h"

namespace lockstep::prompt_cache {

/// SHA-256 of a file's content, cut into pieces of 16 MiB that `threads` threads hash: the hash over the pieces' hashes. Errors name the file.
Result<std::string> file_hash(const std::filesystem::path& path, int threads);

/// Lines "NAME VALUE". Reads config.json and every safetensors file of the checkpoint, and the running program.
Result<std::string> identity_lines(const std::filesystem::path& checkpoint, std::string_view isa, const kernels::StateLayout& layout, int threads);

}  // namespace lockstep::prompt_cache
