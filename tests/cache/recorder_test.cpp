#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/recorder.hpp"
#include "fakes/cache_fixture.hpp"
#include "fakes/cache_on_file_system.hpp"
#include "fakes/child.hpp"
#include "fakes/faulty_file_system.hpp"
#include "fakes/files.hpp"
#include "fakes/set_uid.hpp"
#include "fakes/stores.hpp"
#include "key/request_record.hpp"

// CacheOptions::record and $KILN_RECORD.
namespace kiln {
namespace {

namespace fs = std::filesystem;
using fakes::request;

class RecordedRun : public fakes::CacheTest {
 protected:
  CacheOptions options() {
    CacheOptions options = CacheTest::options();
    options.record = path_;
    return options;
  }
  static std::vector<std::string> names_in(const fs::path& path) {
    std::vector<std::string> names;
    const auto record = key::RequestRecord::read(path).value();
    for (const auto& entry : record.entries()) names.push_back(entry.key.name);
    return names;
  }
  std::vector<std::string> names() const { return names_in(path_); }
  void set_variable(const std::string& value) {
    setenv("KILN_RECORD", value.c_str(), 1);
    is_set_ = true;
  }
  void TearDown() override {
    if (is_set_) unsetenv("KILN_RECORD");
  }

  const fs::path path_ = folder_.path() / "app.kilnreq";
  bool is_set_ = false;
};

TEST_F(RecordedRun, HasWhatWasCompiledWithItsCompileTimeAndApi) {
  Cache cache(backend_, options());
  const Program program = cache.get(request(1)).value();
  cache.flush();
  const auto record = key::RequestRecord::read(path_).value();
  ASSERT_EQ(record.entries().size(), 1U);
  EXPECT_EQ(record.entries()[0].key.digest, request(1).key().digest);
  EXPECT_EQ(record.entries()[0].api, "fake");
  EXPECT_EQ(record.entries()[0].compile_time, program.compile_time());
}

TEST_F(RecordedRun, HasWhatComesFromDiskAndFromAdd) {
  {
    CacheOptions without = options();
    without.record = fs::path();
    Cache(backend_, without).get(request(1)).value();
    EXPECT_FALSE(fs::exists(path_));
  }
  Cache cache(backend_, options());
  cache.get(request(1)).value();
  cache.flush();
  EXPECT_EQ(names(), std::vector<std::string>{"program_1"}) << "a hit on disk";
  cache.add(request(2), backend_->compile(request(2)).value(), std::chrono::seconds(2)).value();
  cache.flush();
  EXPECT_EQ(names(), (std::vector<std::string>{"program_1", "program_2"}));
  EXPECT_EQ(key::RequestRecord::read(path_).value().entries()[1].compile_time, std::chrono::seconds(2));
}

TEST_F(RecordedRun, HasWhatComesFromAStore) {
  const auto store = std::make_shared<fakes::MemoryStore>();
  CacheOptions elsewhere = CacheTest::options();
  elsewhere.directory = folder_.path() / "elsewhere";
  elsewhere.stores = std::vector<SharedStore>{store};
  Cache(backend_, elsewhere).get(request(1)).value();
  ASSERT_EQ(store->size(), 1U);
  CacheOptions here = options();
  here.stores = elsewhere.stores;
  Cache cache(backend_, here);
  cache.get(request(1)).value();
  cache.flush();
  EXPECT_EQ(cache.stats().shared_hits, 1U);
  EXPECT_EQ(names(), std::vector<std::string>{"program_1"});
}

TEST_F(RecordedRun, HasWhatPreloadFindAndGetAsyncAnswer) {
  Cache(backend_, CacheTest::options()).get(request(2)).value();
  {
    Cache cache(backend_, options());
    const std::vector<Request> requests = {request(1), request(2)};
    EXPECT_EQ(cache.preload(requests).ready, 2U);
    cache.get_async(request(3)).get().value();
    EXPECT_FALSE(*cache.find(request(4)));
  }
  const auto recorded = names();
  EXPECT_EQ(std::set<std::string>(recorded.begin(), recorded.end()),
            (std::set<std::string>{"program_1", "program_2", "program_3"}));
}

TEST_F(RecordedRun, LacksFailures) {
  Cache cache(backend_, options());
  EXPECT_FALSE(cache.get(Request({.name = "bad", .source = "does not compile"})));
  EXPECT_FALSE(cache.get(Request({.name = "worse", .source = ""})));
  cache.flush();
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(RecordedRun, IsNotTouchedByHitsInMemory) {
  Cache(backend_, CacheTest::options()).get(request(1)).value();
  Cache cache(backend_, options());
  EXPECT_EQ(cache.warm().ready, 1U);
  for (int i = 0; i < 100; ++i) cache.get(request(1)).value();
  cache.flush();
  EXPECT_EQ(cache.stats().memory_hits, 100U);
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(RecordedRun, DoesNotDelaySavesWhileAnotherProcessHoldsTheLockOfTheFile) {
  Cache(backend_, options()).get(request(0)).value();
  const base::FileHandle file(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  auto lock = base::FileLock::acquire(file, 0, {});
  ASSERT_TRUE(lock);
  CacheOptions narrow = options();
  narrow.write_queue = 1;
  Cache cache(backend_, narrow);
  Cache other(backend_, CacheTest::options());
  for (int i = 1; i <= 20; ++i) {
    cache.get(request(i)).value();
    EXPECT_EQ(other.get(request(i)).value().origin(), Origin::disk);
  }
  EXPECT_EQ(names().size(), 1U);
  lock.reset();
  cache.flush();
  EXPECT_EQ(names().size(), 21U);
  EXPECT_TRUE(book_.records().empty()) << "the lock was held for so long that the recorder gave up";
}

TEST_F(RecordedRun, GetsARequestThatWasDroppedAtTheNextTime) {
  constexpr int requests = 10;
  cache::Recorder recorder(path_, "fake", book_.log(), base::FileSystem::system(), 1);
  recorder.note(request(0), {});
  recorder.flush();
  const base::FileHandle file(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  auto lock = base::FileLock::acquire(file, 0, {});
  ASSERT_TRUE(lock);
  for (int i = 1; i < requests; ++i) recorder.note(request(i), {});
  lock.reset();
  recorder.flush();
  EXPECT_GE(names().size(), 2U);
  EXPECT_LE(names().size(), 3U) << "one at work, one in the queue";
  for (int i = 0; i < requests; ++i) {
    recorder.note(request(i), {});
    recorder.flush();
  }
  EXPECT_EQ(names().size(), static_cast<std::size_t>(requests));
  EXPECT_TRUE(book_.records().empty());
}

TEST_F(RecordedRun, IsChosenByTheEnvironmentUnlessTheApplicationChooses) {
  const auto other = folder_.path() / "other.kilnreq";
  set_variable(other.string());
  Cache(backend_, options()).get(request(1)).value();
  EXPECT_FALSE(fs::exists(other));
  CacheOptions chosen = options();
  chosen.record = std::nullopt;
  Cache(backend_, chosen).get(request(2)).value();
  EXPECT_EQ(names_in(other), std::vector<std::string>{"program_2"});
  chosen.record = fs::path();
  Cache(backend_, chosen).get(request(3)).value();
  EXPECT_EQ(names_in(other).size(), 1U);
  set_variable("");
  chosen.record = std::nullopt;
  Cache(backend_, chosen).get(request(4)).value();
  EXPECT_EQ(names_in(other).size(), 1U);
}

TEST_F(RecordedRun, GoesToTheFolderInWhichTheCacheWasConstructed) {
  const auto before = fs::current_path();
  fs::current_path(folder_.path());
  CacheOptions relative = options();
  relative.record = "relative.kilnreq";
  {
    Cache cache(backend_, relative);
    fs::current_path(before);
    cache.get(request(1)).value();
  }
  EXPECT_EQ(names_in(folder_.path() / "relative.kilnreq").size(), 1U);
}

TEST_F(RecordedRun, OfASetUidProgramIgnoresTheEnvironment) {
  if (fakes::is_set_uid_program()) {
    const fs::path place = std::getenv("KILN_RECORD");
    Cache(backend_, {.directory = place.parent_path() / "cache", .disk = false}).get(request(1)).value();
    fakes::end_set_uid_program(!fs::exists(place));
  }
  fs::create_directory(folder_.path() / "open");
  ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);
  ASSERT_EQ(chmod((folder_.path() / "open").c_str(), 0777), 0);
  const std::string seen = fakes::run_in_set_uid_program(
      folder_.path(), {{"KILN_RECORD", (folder_.path() / "open" / "app.kilnreq").string()}});
  if (seen.starts_with("skipped")) GTEST_SKIP() << seen;
  EXPECT_EQ(seen, fakes::seen_in_set_uid_program);
}

TEST_F(RecordedRun, ThatCannotBeWrittenFailsNoRequestAndIsLoggedOnce) {
  fakes::write_file(path_, "a text of another program");
  Cache cache(backend_, options());
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(cache.get(request(i)));
  cache.flush();
  ASSERT_EQ(book_.records().size(), 1U);
  EXPECT_NE(book_.records()[0].message.find("requests are no longer recorded"), std::string::npos)
      << book_.records()[0].message;
  EXPECT_EQ(fakes::read_file(path_), "a text of another program");
}

TEST_F(RecordedRun, SurvivesAFullDisk) {
  CacheOptions memory_only = options();
  memory_only.disk = false;
  const fakes::FaultyFileSystem full({.at = 8, .error = ENOSPC, .from_then_on = true});
  {
    const auto cache = fakes::cache_on(full, backend_, memory_only);
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(cache->get(request(i)));
  }
  EXPECT_TRUE(full.went_wrong());
  EXPECT_EQ(book_.records().size(), 1U);
  EXPECT_EQ(key::RequestRecord::read(path_).value().damaged(), 0U);
}

TEST_F(RecordedRun, OfManyThreadsHasEachProgramOnce) {
  constexpr int threads = 8;
  constexpr int programs = 60;
  {
    Cache one(backend_, options());
    CacheOptions elsewhere = options();
    elsewhere.directory = folder_.path() / "second";
    elsewhere.write_queue = 2;
    Cache two(backend_, elsewhere);
    std::vector<std::thread> running;
    for (int thread = 0; thread < threads; ++thread)
      running.emplace_back([&, thread] {
        for (int i = 0; i < programs; ++i)
          EXPECT_TRUE((thread % 2 == 0 ? one : two).get(request((i + 7 * thread) % programs)));
      });
    for (auto& thread : running) thread.join();
  }
  const auto recorded = names();
  EXPECT_EQ(recorded.size(), static_cast<std::size_t>(programs));
  EXPECT_EQ(std::set<std::string>(recorded.begin(), recorded.end()).size(), recorded.size());
}

TEST_F(RecordedRun, OfManyProcessesHasEachProgramOnce) {
  std::vector<std::unique_ptr<fakes::Child>> children;
  for (int child = 0; child < 8; ++child)
    children.push_back(std::make_unique<fakes::Child>([&, child](const auto& report) {
      Cache cache(std::make_shared<fakes::FakeBackend>(), options());
      for (int i = 0; i < 50; ++i)
        if (!cache.get(request(i < 25 ? i : 100 * child + i))) return report("failed");
      cache.flush();
      report("done");
    }));
  for (const auto& child : children) EXPECT_EQ(child->report(), "done");
  const auto recorded = names();
  EXPECT_EQ(recorded.size(), 25U + 8 * 25);
  EXPECT_EQ(std::set<std::string>(recorded.begin(), recorded.end()).size(), recorded.size());
}

TEST_F(RecordedRun, GoesOnInAForkedChild) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer does not follow threads that a forked child starts";
#endif
  Cache cache(backend_, options());
  cache.get(request(1)).value();
  EXPECT_EQ(fakes::in_child([&]() -> std::string {
              cache.get(request(1)).value();
              cache.get(request(2)).value();
              cache.flush();
              return "done";
            }),
            "done");
  cache.get(request(3)).value();
  cache.flush();
  const auto recorded = names();
  EXPECT_EQ(std::set<std::string>(recorded.begin(), recorded.end()),
            (std::set<std::string>{"program_1", "program_2", "program_3"}));
  EXPECT_EQ(recorded.size(), 3U);
}

TEST_F(RecordedRun, HasWhatWasFlushedBeforeAKill) {
  fakes::Child child([&](const auto& report) {
    Cache cache(backend_, options());
    for (int i = 0;; ++i) {
      cache.get(request(i)).value();
      cache.flush();
      report(request(i).name());
    }
  });
  std::string last;
  for (int i = 0; i < 5; ++i) last = child.report();
  child.kill();
  const auto recorded = names();
  EXPECT_NE(std::ranges::find(recorded, last), recorded.end());
  EXPECT_EQ(key::RequestRecord::read(path_).value().damaged(), 0U);
}

}  // namespace
}  // namespace kiln
