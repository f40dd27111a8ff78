// Which files of a folder hold its tensors (models.md 8.2).
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::checkpoint {

struct Shards {
  std::vector<std::filesystem::path> files;
  std::map<std::string, std::string> index;  // tensor name -> file name; empty without an index file
};

/// The index file's shards, else every *.safetensors of the folder. A file must lie in the folder after symbolic links are followed (or, in a
/// hub cache's snapshots/REVISION folder, in the blobs folder beside snapshots).
Result<Shards> find_shards(const std::filesystem::path& folder);

}  // namespace lockstep::checkpoint
