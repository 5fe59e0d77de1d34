#include <kiln/prune.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"
#include "store/directory.hpp"
#include "store/samples.hpp"

namespace kiln::store {
namespace {

using namespace std::chrono_literals;

class Prune : public testing::Test {
 protected:
  const std::filesystem::path& root() const { return root_.path(); }

  /// Stores an entry of about `bytes` bytes that was last used `age` ago.
  void put(SampleStore& store, const std::string& name, std::chrono::seconds age, std::size_t bytes = 1000) {
    ASSERT_TRUE(store.put(sample_key(name), sample_entry(incompressible(bytes))));
    fakes::set_age(entry_path(store, sample_key(name)), age);
  }

  /// The names of the entries that are there, in order, of one store after the other.
  std::vector<std::string> left() {
    std::vector<std::string> names;
    for (SampleStore* store : {one_.get(), two_.get()}) {
      const auto items = store->list();
      EXPECT_TRUE(items) << items.error().message();
      if (!items) continue;
      for (const StoredItem& item : *items) names.push_back(item.key.name);
    }
    return names;
  }

  /// The bytes of an entry and what belongs to it.
  std::uint64_t size_of(const SampleStore& store, const std::string& name) const {
    return std::filesystem::file_size(entry_path(store, sample_key(name))) +
           std::filesystem::file_size(meta_path(store, sample_key(name)));
  }

  fakes::TemporaryFolder root_;
  std::unique_ptr<SampleStore> one_ = open_store(root_.path(), sample_identity(1));
  std::unique_ptr<SampleStore> two_ = open_store(root_.path(), sample_identity(2));
};

using Names = std::vector<std::string>;

TEST_F(Prune, TellsWhatItWouldDoAndDoesNothing) {
  put(*one_, "fresh", 0s);
  put(*one_, "old", 48h);
  const auto leftover = one_->path() / ".tmp-00112233445566778899aabbccddeeff";
  fakes::write_file(leftover, "half");
  fakes::set_age(leftover, 48h);
  const auto foreseen = prune(root(), {.max_age = 24h, .dry_run = true}).value();
  EXPECT_EQ(left(), (Names{"fresh", "old"}));
  EXPECT_TRUE(std::filesystem::exists(leftover));
  const auto done = prune(root(), {.max_age = 24h}).value();
  EXPECT_EQ(left(), Names{"fresh"});
  EXPECT_EQ(foreseen.removed, done.removed);
  EXPECT_EQ(foreseen.removed_bytes, done.removed_bytes);
  EXPECT_EQ(foreseen.kept_bytes, done.kept_bytes);
  EXPECT_EQ(foreseen.leftovers, 1U);
  EXPECT_EQ(done.leftovers, 1U);
}

TEST_F(Prune, WritesTheCountsOfWhatIsLeft) {
  put(*one_, "fresh", 0s);
  put(*one_, "old", 48h);
  ASSERT_TRUE(one_->save_notes());
  ASSERT_TRUE(prune(root(), {.max_age = 24h}));
  const Usage usage = one_->disk().usage();
  EXPECT_EQ(usage.programs, 1U);
  EXPECT_EQ(usage.bytes, size_of(*one_, "fresh"));
}

TEST_F(Prune, KeepsTheCountsOfAFolderThatItCannotList) {
  class Unlistable final : public base::FileSystem {
   public:
    explicit Unlistable(const std::filesystem::path& folder) : folder_(folder) {}
    int list(int folder, std::vector<std::string>* names) const override {
      if (std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(folder)) == folder_)
        return errno = EIO, -1;
      return FileSystem::list(folder, names);
    }

   private:
    std::filesystem::path folder_;
  };
  put(*one_, "a", 0s);
  put(*two_, "b", 48h);
  ASSERT_TRUE(one_->save_notes());
  ASSERT_TRUE(two_->save_notes());
  ASSERT_TRUE(prune_on(Unlistable(std::filesystem::canonical(one_->path())), root(), {.max_age = 24h}));
  EXPECT_EQ(total_usage(root(), base::FileSystem::system()).programs, 1U) << "one was kept, two was emptied";
}

TEST_F(Prune, RemovesWhatWasNotUsedForLonger) {
  put(*one_, "fresh", 0s);
  put(*one_, "hour", 1h);
  put(*two_, "day", 24h);
  put(*two_, "week", 168h);
  const auto report = prune(root(), {.max_age = 2h});
  ASSERT_TRUE(report);
  EXPECT_EQ(left(), (Names{"fresh", "hour"}));
  EXPECT_EQ(report->removed, 2U);
  EXPECT_EQ(report->kept, 2U);
}

TEST_F(Prune, RemovesTheLeastRecentlyUsedOfAllDevicesFirst) {
  put(*one_, "a", 4h);
  put(*one_, "b", 1h);
  put(*two_, "c", 3h);
  put(*two_, "d", 2h);
  const std::uint64_t kept = size_of(*one_, "b") + size_of(*two_, "d");
  const std::uint64_t removed = size_of(*one_, "a") + size_of(*two_, "c");
  const auto report = prune(root(), {.max_bytes = kept});
  ASSERT_TRUE(report);
  EXPECT_EQ(left(), (Names{"b", "d"}));
  EXPECT_EQ(report->removed, 2U);
  EXPECT_EQ(report->removed_bytes, removed);
  EXPECT_EQ(report->kept, 2U);
  EXPECT_EQ(report->kept_bytes, kept);
}

TEST_F(Prune, RemovesOneMoreForOneByteLess) {
  put(*one_, "a", 3h);
  put(*one_, "b", 2h);
  put(*one_, "c", 1h);
  const std::uint64_t all = size_of(*one_, "a") + size_of(*one_, "b") + size_of(*one_, "c");
  ASSERT_TRUE(prune(root(), {.max_bytes = all}));
  EXPECT_EQ(left(), (Names{"a", "b", "c"}));
  ASSERT_TRUE(prune(root(), {.max_bytes = all - 1}));
  EXPECT_EQ(left(), (Names{"b", "c"}));
}

TEST_F(Prune, RemovesByAgeAndThenBySize) {
  put(*one_, "old", 48h);
  put(*one_, "large", 2h, 100'000);
  put(*two_, "small", 1h);
  ASSERT_TRUE(prune(root(), {.max_age = 24h, .max_bytes = 50'000}));
  EXPECT_EQ(left(), Names{"small"});
}

TEST_F(Prune, RemovesEverythingForABoundOfNothing) {
  put(*one_, "a", 0s);
  put(*two_, "b", 0s);
  ASSERT_TRUE(prune(root(), {.max_bytes = 0}));
  EXPECT_TRUE(left().empty());
  for (const auto& item : std::filesystem::recursive_directory_iterator(root()))
    EXPECT_NE(item.path().extension(), ".meta") << item.path();
}

TEST_F(Prune, RemovesNothingUnasked) {
  put(*one_, "ancient", std::chrono::hours(24 * 3650));
  const auto report = prune(root(), {});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->removed, 0U);
  EXPECT_EQ(report->kept, 1U);
  EXPECT_EQ(report->kept_bytes, size_of(*one_, "ancient"));
  EXPECT_EQ(left(), Names{"ancient"});
}

TEST_F(Prune, RemovesNothingForAnAgeThatNothingReaches) {
  put(*one_, "ancient", std::chrono::hours(24 * 3650));
  for (const auto age : {std::chrono::seconds(std::chrono::hours(24 * 365 * 1000)), std::chrono::seconds::max()}) {
    ASSERT_TRUE(prune(root(), {.max_age = age}));
    EXPECT_EQ(left(), Names{"ancient"}) << age.count();
  }
}

TEST_F(Prune, KeepsWhatIsNewerThanNow) {
  put(*one_, "tomorrow", -24h);
  ASSERT_TRUE(prune(root(), {.max_age = 1h}));
  EXPECT_EQ(left(), Names{"tomorrow"});
}

TEST_F(Prune, KeepsWhatWasUsedSinceItWasPut) {
  put(*one_, "used", 5h);
  put(*one_, "unused", 4h);
  ASSERT_TRUE(one_->get(sample_key("used")));
  ASSERT_TRUE(prune(root(), {.max_bytes = size_of(*one_, "used")}));
  EXPECT_EQ(left(), Names{"used"});
}

TEST_F(Prune, RemovesTemporaryFilesThatNobodyWritesAnyMore) {
  const auto name_of = [](char digit) { return ".tmp-" + std::string(32, digit); };
  const std::string old = name_of('1'), fresh = name_of('2'), written = name_of('f');
  put(*one_, "a", 0s);
  for (const auto& folder : {root(), one_->path()}) {
    for (const auto& [name, age] : {std::pair{old, 48h}, {fresh, 0h}, {written, 2h}}) {
      fakes::write_file(folder / name, "left over");
      fakes::set_age(folder / name, age);
    }
    // As who writes it does, for as long as that takes.
    const base::Folder opened = base::Folder::open(folder, false).value();
    const base::FileHandle file = opened.open_lock_file(written).value();
    const auto lock = base::FileLock::acquire(file, 0, 0ms);
    EXPECT_FALSE(opened.is_abandoned(written));
    const auto report = prune(root(), {});
    ASSERT_TRUE(report);
    EXPECT_EQ(report->leftovers, folder == root() ? 2U : 3U);
    EXPECT_FALSE(std::filesystem::exists(folder / old));
    EXPECT_FALSE(std::filesystem::exists(folder / fresh));
    EXPECT_TRUE(std::filesystem::exists(folder / written));
  }
  EXPECT_EQ(left(), Names{"a"});
}

TEST_F(Prune, WithoutLocksRemovesOldTemporaryFilesAndNotFreshOnes) {
  class WithoutLocks final : public base::FileSystem {
    int lock(int, int, struct flock*) const override { return errno = ENOLCK, -1; }
  };
  const auto name_of = [](char digit) { return ".tmp-" + std::string(32, digit); };
  put(*one_, "a", 0s);
  for (const auto& [name, age] : {std::pair{name_of('1'), 2h}, {name_of('2'), 48h}, {name_of('f'), 0h}}) {
    fakes::write_file(one_->path() / name, "left over");
    fakes::set_age(one_->path() / name, age);
  }
  EXPECT_EQ(prune_on(WithoutLocks(), root(), {}).value().leftovers, 2U);
  EXPECT_TRUE(std::filesystem::exists(one_->path() / name_of('f')));
}

TEST_F(Prune, LeavesWhatIsNotKilns) {
  put(*one_, "a", 48h);
  const std::string name = entry_file_name(sample_key("a"));
  fakes::write_file(root() / "notes.txt", "mine");
  fakes::write_file(root() / "photos" / name, "mine");
  fakes::write_file(root() / "short-0123" / name, "mine");
  fakes::write_file(root() / "no_digest-zzzzzzzzzzzzzzzz" / name, "mine");
  fakes::write_file(one_->path() / "notes.txt", "mine");
  ASSERT_TRUE(prune(root(), {.max_age = 1h, .max_bytes = 0}));
  EXPECT_TRUE(left().empty());
  for (const auto& path : {root() / "notes.txt", root() / "photos" / name, root() / "short-0123" / name,
                           root() / "no_digest-zzzzzzzzzzzzzzzz" / name, one_->path() / "notes.txt"})
    EXPECT_EQ(fakes::read_file(path), "mine") << path;
}

TEST_F(Prune, DoesNotFollowASymlinkOutOfTheDirectory) {
  const fakes::TemporaryFolder elsewhere;
  const auto other = open_store(elsewhere.path(), sample_identity(3));
  put(*other, "precious", 48h);
  std::filesystem::create_symlink(other->path(), root() / other->path().filename());
  ASSERT_TRUE(prune(root(), {.max_bytes = 0}));
  EXPECT_EQ(other->list()->size(), 1U);
}

TEST_F(Prune, RemovesASymlinkInAnEntrysPlaceAndNotItsTarget) {
  put(*one_, "a", 0s);
  const auto target = root() / "target";
  std::filesystem::rename(entry_path(*one_, sample_key("a")), target);
  std::filesystem::create_symlink(target, entry_path(*one_, sample_key("a")));
  ASSERT_TRUE(prune(root(), {.max_bytes = 0}));
  EXPECT_TRUE(std::filesystem::exists(target));
}

TEST_F(Prune, GoesOnPastAFolderInAnEntrysPlace) {
  put(*one_, "a", 1h);
  put(*two_, "b", 1h);
  const auto folder = entry_path(*one_, sample_key("folder"));
  fakes::write_file(folder / "precious", "mine");
  fakes::set_age(folder, 48h);
  const auto report = prune(root(), {.max_bytes = 0});
  EXPECT_TRUE(report) << report.error().message();
  EXPECT_FALSE(std::filesystem::exists(entry_path(*one_, sample_key("a"))));
  EXPECT_FALSE(std::filesystem::exists(entry_path(*two_, sample_key("b"))));
  EXPECT_EQ(fakes::read_file(folder / "precious"), "mine");
}

TEST_F(Prune, PassesOverAFolderOfAnotherUser) {
  if (!fakes::is_root()) GTEST_SKIP() << "only root can give a folder to another user";
  put(*one_, "a", 0s);
  put(*two_, "b", 0s);
  ASSERT_EQ(chown(two_->path().c_str(), fakes::other_user, fakes::other_user), 0);
  ASSERT_TRUE(prune(root(), {.max_bytes = 0}));
  EXPECT_EQ(left(), Names{"b"});
}

TEST_F(Prune, OfADirectoryThatIsNotThereFindsNothing) {
  const auto report = prune(root() / "missing", {.max_bytes = 0});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->removed + report->kept + report->leftovers, 0U);
  EXPECT_FALSE(std::filesystem::exists(root() / "missing"));
}

TEST_F(Prune, OfAFileIsAnError) {
  fakes::write_file(root() / "file", "precious");
  const auto report = prune(root() / "file", {.max_bytes = 0});
  ASSERT_FALSE(report);
  EXPECT_NE(report.error().message().find("file"), std::string::npos);
  EXPECT_EQ(fakes::read_file(root() / "file"), "precious");
}

TEST_F(Prune, IsSafeWhileStoresAreAtWork) {
  std::vector<std::thread> threads;
  for (SampleStore* store : {one_.get(), two_.get()}) {
    threads.emplace_back([store] {
      for (int i = 0; i < 100; ++i) {
        const Key key = sample_key(fakes::numbered("p", i % 7));
        const auto put = store->put(key, sample_entry(key.name));
        EXPECT_TRUE(put) << put.error().message();
        const std::string found = answer(*store, key);
        EXPECT_TRUE(found == key.name || found == "nothing") << found;
      }
    });
  }
  for (int i = 0; i < 30; ++i) EXPECT_TRUE(prune(root(), {.max_bytes = 500}));
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(prune(root(), {.max_bytes = 0}));
  EXPECT_TRUE(left().empty());
}

TEST_F(Prune, ByTwoProcessesAtOnceRemovesEveryEntryOnce) {
  constexpr int entries = 200;
  for (int i = 0; i < entries; ++i) put(*one_, fakes::numbered("p", i), std::chrono::hours(i), 10);
  std::vector<std::unique_ptr<fakes::Child>> pruners;
  for (int p = 0; p < 3; ++p) {
    pruners.push_back(std::make_unique<fakes::Child>([this](const fakes::Child::Report& report) {
      const auto pruned = prune(root(), {.max_bytes = 0});
      report(pruned ? std::to_string(pruned->removed) : pruned.error().message());
    }));
  }
  int removed = 0;
  for (auto& pruner : pruners) removed += std::stoi(pruner->report());
  EXPECT_EQ(removed, entries);
}

}  // namespace
}  // namespace kiln::store
