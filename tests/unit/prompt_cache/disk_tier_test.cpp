// The disk tier: what comes back after a restart has the bits of a fresh computation; what is not right is deleted and never used.
#include <sys/stat.h>

#include "unit/prompt_cache/lives.h"

namespace lockstep::testing {
namespace {

class Disk : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    LOCKSTEP_NEED_FIXTURE(checkpoint(GetParam()));
    model = &shared_model(GetParam());
    any_prefix = model->model->backend().layout().recurrent_bytes == 0;
    folder = temporary.path() / "cache";
  }
  fs::path only_state() {
    const auto found = files(folder / "states");
    EXPECT_EQ(found.size(), 1u);
    return found.at(0);
  }
  TempFolder temporary;
  fs::path folder;
  LoadedModel* model = nullptr;
  bool any_prefix = false;
};

TEST_P(Disk, RestartRestoresTheSameBits) {
  const int lengths[] = {1, 15, 16, 31, 32, 33, 64, 75, 100};
  {
    Life life(*model, folder);
    for (int n : lengths) life.insert(some_tokens(n, n));
  }
  Life life(*model, folder);
  EXPECT_EQ(life.disk().states, std::ssize(lengths));
  for (int n : lengths) {
    Tokens longer = some_tokens(n, n);
    longer.push_back(5);
    EXPECT_EQ(life.cache->longest("", longer, n), n);
    EXPECT_FALSE(life.cache->contains("", some_tokens(n, n)));  // memory has it after the first use
    const auto hit = life.find(longer);
    ASSERT_EQ(hit.length, n);
    EXPECT_EQ(life.restored(hit), life.fresh(some_tokens(n, n))) << n;
    EXPECT_TRUE(life.cache->contains("", some_tokens(n, n)));
    EXPECT_EQ(life.find(longer).length, n);  // of memory
  }
  EXPECT_EQ(life.disk().hits, std::ssize(lengths));
  EXPECT_EQ(life.disk().broken, 0);
  EXPECT_EQ(life.disk().writes, 0);  // they are there
  while (life.cache->evict_one()) {}
  EXPECT_EQ(life.ledger.view().held_bytes, life.layout().page_bytes);  // the writer's buffer alone
}

TEST_P(Disk, PrivateToTheUser) {
  { Life(*model, folder).insert(some_tokens(40)); }
  struct stat info {};
  for (const fs::path& path : {folder, folder / "states", folder / "pages"}) {
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u) << path;
  }
  for (const fs::path& path : {only_state(), files(folder / "pages").at(0), folder / "identity", folder / "lock"}) {
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << path;
  }
}

TEST_P(Disk, PagesOfAPrefixAreWrittenOnce) {
  Tokens other = some_tokens(100);
  other[98]++;
  {
    Life life(*model, folder);
    life.insert(some_tokens(64));
    life.insert(some_tokens(100));
    life.insert(other);
  }
  EXPECT_EQ(files(folder / "pages").size(), 3u);  // [0, 96)
  EXPECT_EQ(files(folder / "states").size(), 3u);
  Life life(*model, folder);
  EXPECT_EQ(life.restored(life.find(other)), life.fresh(other));
  EXPECT_EQ(life.restored(life.find(some_tokens(100))), life.fresh(some_tokens(100)));  // its first pages are those in memory
  std::size_t bytes = 0;
  for (const char* subfolder : {"states", "pages"})
    for (const fs::path& path : files(folder / subfolder)) bytes += fs::file_size(path);
  EXPECT_EQ(life.disk().bytes, bytes);
}

TEST_P(Disk, SaltsSeparate) {
  {
    Life life(*model, folder);
    life.insert(some_tokens(40), "one");
  }
  Life life(*model, folder);
  EXPECT_EQ(life.find(some_tokens(40), "two").length, 0);
  EXPECT_EQ(life.find(some_tokens(40)).length, 0);
  EXPECT_EQ(life.find(some_tokens(40), "one").length, 40);
  life.insert(some_tokens(40), "two");
  life.settle(1);
  EXPECT_EQ(files(folder / "pages").size(), 2u);  // pages too: a hit must not tell one salt of another
}

// Rows that did not stand, or were another stream's, lie past the end of a page's standing part.
TEST_P(Disk, NothingPastTheEndReachesTheDisk) {
  const Tokens tokens = some_tokens(45);
  { Life(*model, folder).insert(Tokens(tokens.begin(), tokens.begin() + 40)); }
  const std::string plain = content(only_state());
  fs::remove_all(folder);
  {
    Life life(*model, folder);
    auto state = life.sequence();
    model->run(*state, tokens, models::Segment::Logits::kNone, 40);
    life.cache->insert("", std::span(tokens).first(40), std::move(state->save()).value());
  }
  EXPECT_EQ(content(only_state()), plain);
}

// Every kind of damage: the state is not used, its file is gone, and computed anew it is kept anew.
TEST_P(Disk, DamageIsSeenAndDeleted) {
  const Tokens tokens = some_tokens(40);
  { Life(*model, folder).insert(tokens, "salt"); }
  const fs::path state = only_state(), page = files(folder / "pages").at(0);
  const std::string state_bytes = content(state), page_bytes = content(page);
  const std::size_t header = 24, recurrent = header + 4 + 40 * 4, tail = recurrent + prompt_cache::recurrent_bytes(model->model->backend().layout(), 40);
  struct Damage {
    fs::path path;
    std::string bytes;
    std::string what;
  };
  std::vector<Damage> damages;
  const auto flip = [&](const fs::path& path, std::string bytes, std::size_t at) {
    bytes[at] = char(bytes[at] ^ 0x10);
    damages.push_back({path, bytes, "flipped byte " + std::to_string(at)});
  };
  const std::size_t end = state_bytes.size(), page_end = page_bytes.size();
  std::set<std::size_t> places{0, 7, 8, 15, 16, 23, header, header + 3, header + 4, recurrent - 1, tail, end - 33, end - 32, end - 1};
  if (!any_prefix) places.insert({recurrent, tail - 1});
  for (std::size_t at : places) flip(state, state_bytes, at);
  for (std::size_t at : {std::size_t(0), page_end - 33, page_end - 32, page_end - 1}) flip(page, page_bytes, at);
  for (std::size_t n : {std::size_t(0), std::size_t(7), header, header + 2, header + 4, recurrent, tail, tail + 1, end - 32, end - 1})
    damages.push_back({state, state_bytes.substr(0, n), "cut to " + std::to_string(n)});
  for (std::size_t n : {std::size_t(0), page_end - 32, page_end - 1})
    damages.push_back({page, page_bytes.substr(0, n), "cut to " + std::to_string(n)});
  damages.push_back({state, state_bytes + "x", "one byte more"});
  damages.push_back({page, page_bytes + "x", "one byte more in the page"});
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.what + (damage.path == page ? " of a page" : " of a state"));
    for (bool after_start : {false, true}) {  // also where the index was read before
      overwrite(state, state_bytes), overwrite(page, page_bytes);
      if (!after_start) overwrite(damage.path, damage.bytes);
      Life life(*model, folder);
      if (after_start) overwrite(damage.path, damage.bytes);
      EXPECT_EQ(life.find(tokens, "salt").length, 0);
      EXPECT_FALSE(fs::exists(state));
      EXPECT_FALSE(fs::exists(page));
      EXPECT_EQ(life.disk().broken, 1);
      EXPECT_EQ(life.disk().states, 0);
      EXPECT_EQ(life.disk().bytes, 0u);
      EXPECT_EQ(life.ledger.view().held_bytes, life.layout().page_bytes);
      if (&damage != &damages.back() || after_start) continue;
      life.insert(tokens, "salt");
      life.settle(1);
      EXPECT_EQ(content(state), state_bytes);
      EXPECT_EQ(content(page), page_bytes);
    }
  }
}

TEST_P(Disk, AFileUnderAnotherNameIsBroken) {
  { Life(*model, folder).insert(some_tokens(40)); }
  const fs::path state = only_state();
  std::string name = state.filename();
  name[5] = name[5] == 'a' ? 'b' : 'a';
  fs::rename(state, state.parent_path() / name);
  Life life(*model, folder);
  EXPECT_EQ(life.disk().broken, 1);
  EXPECT_TRUE(files(folder / "states").empty());
  EXPECT_TRUE(files(folder / "pages").empty());  // no state needs it
}

TEST_P(Disk, AShorterStateServesWhereTheLongerIsBroken) {
  const Tokens tokens = some_tokens(100);
  {
    Life life(*model, folder);
    life.insert(Tokens(tokens.begin(), tokens.begin() + 40));
    life.settle(1);
    life.insert(tokens);
  }
  Life life(*model, folder);
  for (const fs::path& path : files(folder / "states")) {
    std::string bytes = content(path);
    if (bytes[16] == 100) bytes.back() ^= 1, overwrite(path, bytes);
  }
  const auto hit = life.find(tokens);
  EXPECT_EQ(hit.length, 40);
  EXPECT_EQ(life.restored(hit), life.fresh(Tokens(tokens.begin(), tokens.begin() + 40)));
  EXPECT_EQ(life.disk().broken, 1);
}

TEST_P(Disk, AnotherIdentityDropsTheStatesAndNothingElse) {
  { Life(*model, folder).insert(some_tokens(40)); }
  overwrite(folder / "states" / "notes.txt", "mine");
  overwrite(folder / "notes.txt", "mine");
  { EXPECT_EQ(Life(*model, folder).disk().states, 1); }
  Life::Options changed;
  changed.identity = "weights 2\ndevice a\n";
  {
    Life life(*model, folder, changed);
    EXPECT_EQ(life.disk().states, 0);
    EXPECT_EQ(life.find(some_tokens(40)).length, 0);
  }
  EXPECT_EQ(files(folder / "states").size(), 1u);
  EXPECT_TRUE(files(folder / "pages").empty());
  EXPECT_EQ(content(folder / "states" / "notes.txt") + content(folder / "notes.txt"), "minemine");
  EXPECT_EQ(Life(*model, folder).disk().states, 0);  // back to the first: dropped is dropped
}

TEST_P(Disk, LeftoversOfACutOffWriteAreRemoved) {
  { Life(*model, folder).insert(some_tokens(40)); }
  const std::string name = only_state().filename();
  overwrite(folder / "states" / (name + ".tmp"), "half");
  overwrite(folder / "pages" / (name + ".tmp"), "half");
  overwrite(folder / "pages" / "mine.tmp", "half");
  Life life(*model, folder);
  EXPECT_EQ(life.disk().states, 1);
  EXPECT_EQ(files(folder / "states").size(), 1u);
  EXPECT_FALSE(fs::exists(folder / "pages" / (name + ".tmp")));
  EXPECT_TRUE(fs::exists(folder / "pages" / "mine.tmp"));
}

TEST_P(Disk, RefusesAFolderByName) {
  memory::Ledger ledger;
  state::Store store(model->model->backend(), ledger);
  const auto expect_refused = [&](const fs::path& path, const std::string& why) {
    const auto opened = Life::open(store, path, {});
    ASSERT_FALSE(opened.ok()) << path;
    EXPECT_NE(opened.error().message.find("--prompt-cache-dir " + path.string()), std::string::npos) << opened.error().message;
    EXPECT_NE(opened.error().message.find(why), std::string::npos) << opened.error().message;
    EXPECT_EQ(ledger.view().held_bytes, 0u);
  };
  fs::create_directory(folder);
  overwrite(folder / "letter.txt", "dear");
  expect_refused(folder, "is not empty and not a prompt cache");
  EXPECT_EQ(files(folder).size(), 1u);
  overwrite(folder / "identity", "card");
  expect_refused(folder, "not that of a prompt cache");
  EXPECT_EQ(files(folder).size(), 2u);
  expect_refused(folder / "letter.txt" / "under", "cannot be created");
  expect_refused(folder / "letter.txt", "is not a folder");
  const fs::path taken = temporary.path() / "taken";
  Life life(*model, taken);
  expect_refused(taken, "another server uses it");
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Disk, ::testing::Values("tiny-qwen3_5-mlx-4bit", "tiny-llama"),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace lockstep::testing
