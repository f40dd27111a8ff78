#include "checkpoint/shards.h"

#include <algorithm>
#include <set>

#include "checkpoint/json_file.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kIndexBytes = std::size_t(16) << 20, kMaxShards = 1024;
constexpr const char* kIndexName = "model.safetensors.index.json";

/// A bare name that ends in .safetensors: no separators, no "..", nothing hidden.
bool is_plain_name(const std::string& name) {
  return name.ends_with(".safetensors") && name[0] != '.' && name.size() <= 255 && name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
}

Status check_place(const fs::path& folder, const fs::path& file) {
  std::error_code error;
  const fs::path real_folder = fs::canonical(folder, error);
  if (error) return Error{ErrorCode::kIo, folder.string() + ": " + error.message(), folder.string()};
  const fs::path real_file = fs::canonical(file, error);
  if (error == std::errc::no_such_file_or_directory) return Error{ErrorCode::kNotFound, file.string() + ": the shard is missing", file.filename().string()};
  if (error) return Error{ErrorCode::kIo, file.string() + ": " + error.message(), file.filename().string()};
  const bool in_hub_cache = real_folder.parent_path().filename() == "snapshots" &&
                            real_file.parent_path() == real_folder.parent_path().parent_path() / "blobs";
  if (real_file.parent_path() == real_folder || in_hub_cache) return {};
  return Error{ErrorCode::kCorruptFile, file.string() + ": leads out of the folder, to " + real_file.string(), file.filename().string()};
}

Status read_index(const std::string& text, const std::string& file, Shards& shards) {
  LOCKSTEP_ASSIGN(const boost::json::object object, parse_json_object(text, file));
  const Fields root(object, file);
  LOCKSTEP_ASSIGN(const std::optional<Fields> map, root.object("weight_map"));
  if (!map) return root.wrong("weight_map", "is missing");
  if (map->json().empty()) return root.wrong("weight_map", "is empty");
  for (const auto& entry : map->json()) {
    const std::string name(entry.key().data(), entry.key().size());
    LOCKSTEP_ASSIGN(const std::optional<std::string> shard, map->string(name));
    if (!shard || !is_plain_name(*shard))
      return map->wrong(name, "is " + shown(entry.value()) + "; it must be the bare name of a .safetensors file in the folder");
    shards.index.emplace(name, *shard);
  }
  return {};
}

Result<std::vector<fs::path>> all_safetensors(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> files;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    if (is_plain_name(it->path().filename().string())) files.push_back(it->path());
    if (files.size() > kMaxShards) return Error{ErrorCode::kCorruptFile, folder.string() + ": has more than 1024 .safetensors files", folder.string()};
  }
  if (error) return Error{ErrorCode::kIo, folder.string() + ": " + error.message(), folder.string()};
  if (files.empty()) return Error{ErrorCode::kNotFound, folder.string() + ": has no .safetensors file", folder.string()};
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

Result<Shards> find_shards(const fs::path& folder) {
  Shards shards;
  auto text = read_text_file(folder / kIndexName, kIndexBytes);
  if (text.ok()) {
    LOCKSTEP_TRY(read_index(*text, kIndexName, shards));
    std::set<std::string> names;
    for (const auto& [tensor, file] : shards.index) names.insert(file);
    if (names.size() > kMaxShards) return Error{ErrorCode::kCorruptFile, std::string(kIndexName) + ": names more than 1024 files", kIndexName};
    for (const auto& name : names) shards.files.push_back(folder / name);
  } else if (text.error().code == ErrorCode::kNotFound) {
    LOCKSTEP_ASSIGN(shards.files, all_safetensors(folder));
  } else {
    return text.error();
  }
  for (const auto& file : shards.files) LOCKSTEP_TRY(check_place(folder, file));
  return shards;
}

}  // namespace lockstep::checkpoint
