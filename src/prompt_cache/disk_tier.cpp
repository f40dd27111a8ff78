#include "prompt_cache/disk_tier.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace lockstep::prompt_cache {
namespace fs = std::filesystem;
namespace {

// The index is in memory: at most 16,384 keys of together 128 MiB.
constexpr std::size_t kMostStates = 16384, kMostTokens = std::size_t(32) << 20;

}  // namespace

Result<std::unique_ptr<DiskTier>> DiskTier::open(DiskOptions options, state::Store& store) {
  LOCKSTEP_ASSIGN(memory::Reservation scratch, store.ledger.reserve(memory::Tag::kScratch, store.backend.layout().page_bytes));
  LOCKSTEP_ASSIGN(CacheFolder folder, CacheFolder::open(options.folder, options.identity));
  std::unique_ptr<DiskTier> disk(new DiskTier(std::move(folder), std::move(options), store, std::move(scratch)));
  disk->index();
  return disk;
}

DiskTier::DiskTier(CacheFolder folder, DiskOptions options, state::Store& store, memory::Reservation scratch)
    : folder_(std::move(folder)), options_(std::move(options)), store_(store), scratch_(std::move(scratch)),
      any_prefix_(store.backend.layout().recurrent_bytes == 0), writer_(folder_, store.backend, options_.writer) {}

DiskTier::~DiskTier() = default;

// What is in the folder, most recently used first by the files' times, up to the limit. Only keys are read: the other bytes are checked when they
// are used.
void DiskTier::index() {
  const kernels::StateLayout& layout = store_.backend.layout();
  const auto pages = folder_.pages();
  std::vector<std::pair<fs::file_time_type, std::string>> files;
  for (const auto& [name, size] : folder_.states()) {
    std::error_code ignored;
    files.emplace_back(fs::last_write_time(folder_.state(name), ignored), name);
  }
  std::sort(files.rbegin(), files.rend());
  bool full = false;
  for (const auto& [time, name] : files) {
    if (full) {
      ::unlink(folder_.state(name).c_str());
      stats_.evictions++;
      continue;
    }
    auto key = read_key(folder_.state(name), layout);
    const Names names = key.ok() ? names_of(key->salt, key->tokens, layout.page_tokens) : Names{};
    if (!key.ok() || !std::all_of(names.pages.begin(), names.pages.end(), [&](const std::string& page) {
          const auto it = pages.find(page);
          return it != pages.end() && it->second == page_file_bytes(layout);
        })) {
      ::unlink(folder_.state(name).c_str());
      stats_.broken++;
      continue;
    }
    const std::size_t bytes = state_file_bytes(layout, key->salt.size(), std::int64_t(key->tokens.size()));
    add(states_.end(), {std::move(key).value(), name, bytes, true}, names);
    full = over_limit() && evict_one();
  }
  for (const auto& [name, size] : pages)
    if (!page_uses_.contains(name)) ::unlink(folder_.page(name).c_str());
  if (stats_.broken) spdlog::warn("prompt cache: {} states on disk were broken and are deleted", stats_.broken);
  spdlog::info("prompt cache: {} states on disk, {} MiB", states_.size(), bytes() >> 20);
}

bool DiskTier::over_limit() const { return bytes() > options_.limit_bytes || states_.size() > kMostStates || index_tokens_ > kMostTokens; }

void DiskTier::add(States::iterator before, State state, const Names& names) {
  for (const std::string& page : names.pages) page_uses_[page]++;
  state_bytes_ += state.bytes;
  index_tokens_ += state.key.tokens.size();
  stats_.states += state.ready;
  const auto it = states_.insert(before, std::move(state));
  by_name_[it->name] = it;
}

// Its file and the pages that no other state needs go too.
void DiskTier::remove(States::iterator it) {
  ::unlink(folder_.state(it->name).c_str());
  for (const std::string& page : names_of(it->key.salt, it->key.tokens, store_.backend.layout().page_tokens).pages) {
    const auto uses = page_uses_.find(page);
    if (--uses->second > 0) continue;
    page_uses_.erase(uses);
    ::unlink(folder_.page(page).c_str());
  }
  state_bytes_ -= it->bytes;
  index_tokens_ -= it->key.tokens.size();
  stats_.states -= it->ready;
  by_name_.erase(it->name);
  states_.erase(it);
}

// A state whose write has not ended stays: the writer may be at it.
bool DiskTier::evict_one() {
  const auto it = std::find_if(states_.rbegin(), states_.rend(), [](const State& state) { return state.ready; });
  if (it == states_.rend()) return false;
  remove(std::prev(it.base()));
  stats_.evictions++;
  return true;
}

// The file's time says it to the next start.
void DiskTier::use(States::iterator it) {
  states_.splice(states_.begin(), states_, it);
  if (it->ready) ::utimensat(AT_FDCWD, folder_.state(it->name).c_str(), nullptr, 0);
}

void DiskTier::touch(const Key& key) {
  const auto it = std::find_if(states_.begin(), states_.end(), [&](const State& state) { return state.key == key; });
  if (it != states_.end()) use(it);
}

DiskTier::Point DiskTier::best(const Lookup& lookup, std::int64_t above) const {
  Point best;
  for (const State& state : states_) {
    if (!state.ready) continue;
    if (const std::int64_t n = lookup.point(state.key, std::max(above, best.length)); n > 0) best = {&state.key, n};
  }
  return best;
}

std::int64_t DiskTier::full_pages(std::int64_t length) const {
  const int page_tokens = store_.backend.layout().page_tokens;
  return page_tokens ? length / page_tokens : 0;
}

std::size_t DiskTier::shared_bytes(const Point& point) const { return std::size_t(full_pages(point.length)) * store_.backend.layout().page_bytes; }

std::size_t DiskTier::load_bytes(const Point& point, const Hit& memory) const {
  const kernels::StateLayout& layout = store_.backend.layout();
  return recurrent_bytes(layout, point.length) + std::size_t(layout.pages(point.length) - full_pages(memory.length)) * layout.page_bytes;
}

Result<std::shared_ptr<const state::Snapshot>> DiskTier::load(const Point& point, const Hit& memory) {
  const auto it = std::find_if(states_.begin(), states_.end(), [&](const State& state) { return &state.key == point.key; });
  LOCKSTEP_CHECK(it != states_.end() && it->ready);
  auto loaded = read(point, memory);
  if (loaded.ok()) {
    stats_.hits++;
    use(it);
  } else if (loaded.error().code != ErrorCode::kDoesNotFit) {
    spdlog::warn("prompt cache: a state on disk is broken and is deleted: {}", loaded.error().message);
    stats_.broken++;
    remove(it);
  }
  return loaded;
}

Result<std::shared_ptr<const state::Snapshot>> DiskTier::read(const Point& point, const Hit& memory) {
  const kernels::StateLayout& layout = store_.backend.layout();
  const std::int64_t whole = std::int64_t(point.key->tokens.size());
  const Names names = names_of(point.key->salt, point.key->tokens, layout.page_tokens);
  auto kept = std::make_shared<state::Snapshot>();
  kept->length = point.length;
  kept->recurrent_bytes = recurrent_bytes(layout, point.length);
  LOCKSTEP_ASSIGN(kept->reservation, store_.ledger.reserve(memory::Tag::kSnapshots, kept->recurrent_bytes));
  if (kept->recurrent_bytes) kept->recurrent = std::make_unique_for_overwrite<std::byte[]>(kept->recurrent_bytes);
  const std::int64_t pages = layout.pages(point.length);
  std::span<std::byte> tail;
  for (std::int64_t j = 0; j < pages; j++) {
    if (j < full_pages(memory.length)) {
      kept->pages.push_back(memory.state->pages[std::size_t(j)]);
      continue;
    }
    LOCKSTEP_ASSIGN(state::PageRef page, store_.pages.take());
    const std::span<std::byte> bytes(page->data(), layout.page_bytes);
    kept->pages.push_back(std::move(page));
    if (j == std::int64_t(names.pages.size())) {
      tail = bytes;
      continue;
    }
    const fs::path path = folder_.page(names.pages[std::size_t(j)]);
    if (Status status = read_page(path, bytes); !status.ok()) {
      ::unlink(path.c_str());  // written anew with the next state that needs it
      return status.error();
    }
  }
  // Where only full pages of a longer state are wanted, their own hashes say enough.
  if (point.length == whole || !tail.empty())
    LOCKSTEP_TRY(read_state(folder_.state(names.state), *point.key, {kept->recurrent.get(), kept->recurrent_bytes}, tail));
  return std::shared_ptr<const state::Snapshot>(std::move(kept));
}

void DiskTier::offer(const Key& key, const std::shared_ptr<const state::Snapshot>& snapshot) {
  collect();
  const kernels::StateLayout& layout = store_.backend.layout();
  const Lookup lookup(key.salt, key.tokens, std::int64_t(key.tokens.size()), any_prefix_);
  for (auto it = states_.begin(); it != states_.end(); ++it)
    if (lookup.point(it->key, std::int64_t(key.tokens.size()) - 1)) return use(it);
  Names names = names_of(key.salt, key.tokens, layout.page_tokens);
  const std::size_t own = state_file_bytes(layout, key.salt.size(), snapshot->length);
  std::size_t fresh = own;
  for (const std::string& page : names.pages)
    if (!page_uses_.contains(page)) fresh += page_file_bytes(layout);
  if (own + names.pages.size() * page_file_bytes(layout) > options_.limit_bytes || !writer_.has_room(fresh)) {
    stats_.write_drops++;
    return;
  }
  add(states_.begin(), {key, names.state, own, false}, names);
  while (over_limit())
    if (!evict_one()) {
      stats_.write_drops++;
      return remove(states_.begin());
    }
  writer_.push({key, std::move(names), snapshot, fresh});
}

std::size_t DiskTier::collect() {
  const std::vector<WriteJob> done = writer_.take_done();
  for (const WriteJob& job : done) {
    const auto it = by_name_.at(job.names.state);
    if (job.written.ok()) {
      it->ready = true;
      stats_.states++;
      stats_.writes++;
      continue;
    }
    stats_.write_drops++;
    remove(it);
    if (job.written.error().code == ErrorCode::kCancelled || error_logged_) continue;
    spdlog::error("prompt cache: a state was not written to disk: {} (said once; lockstep_prompt_cache_disk_write_drops_total counts)",
                  job.written.error().message);
    error_logged_ = true;
  }
  return done.size();
}

bool DiskTier::give_up() {
  writer_.give_up();
  return collect() > 0;
}

DiskStats DiskTier::stats() const {
  DiskStats s = stats_;
  s.bytes = bytes();
  return s;
}

}  // namespace lockstep::prompt_cache
