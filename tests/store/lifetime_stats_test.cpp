#include "store/bookkeeping.hpp"

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"
#include "key/stats.hpp"

namespace kiln::store {
namespace {

using namespace std::chrono_literals;

/// Statistics in which every counter has a value of its own, times `factor`.
LifetimeStats sample(std::uint64_t factor = 1) {
  LifetimeStats stats{.sessions = factor, .totals = {}};
  std::uint64_t value = 10;
  for (const auto& [name, member] : key::counters) stats.totals.*member = factor * value++;
  stats.totals.compile_time = std::chrono::nanoseconds(100 * factor);
  stats.totals.compile_time_saved = std::chrono::nanoseconds(200 * factor);
  for (const char* name : {"redis://cache:6379/0", "file:///mnt/kiln"}) {
    StoreStats& store = stats.totals.stores.emplace_back(StoreStats{.name = name});
    for (const auto& [counter, member] : key::store_counters) store.*member = factor * value++;
    // Of the last process.
    store.latency_p99 = 7ms;
    store.writing = false;
  }
  return stats;
}

void expect_equal(const LifetimeStats& found, const LifetimeStats& expected) {
  EXPECT_EQ(found.sessions, expected.sessions);
  for (const auto& [name, member] : key::counters) EXPECT_EQ(found.totals.*member, expected.totals.*member) << name;
  EXPECT_EQ(found.totals.compile_time, expected.totals.compile_time);
  EXPECT_EQ(found.totals.compile_time_saved, expected.totals.compile_time_saved);
  ASSERT_EQ(found.totals.stores.size(), expected.totals.stores.size());
  for (std::size_t i = 0; i < found.totals.stores.size(); ++i) {
    EXPECT_EQ(found.totals.stores[i].name, expected.totals.stores[i].name);
    for (const auto& [name, member] : key::store_counters)
      EXPECT_EQ(found.totals.stores[i].*member, expected.totals.stores[i].*member) << name;
    EXPECT_EQ(found.totals.stores[i].latency_p99, expected.totals.stores[i].latency_p99);
    EXPECT_EQ(found.totals.stores[i].reading, expected.totals.stores[i].reading);
    EXPECT_EQ(found.totals.stores[i].writing, expected.totals.stores[i].writing);
  }
}

class Lifetime : public testing::Test {
 protected:
  const std::filesystem::path& root() const { return root_.path(); }
  std::filesystem::path file() const { return root() / "cache_stats.json"; }

  fakes::TemporaryFolder root_;
};

TEST(Counters, AreAllInTheTable) {
  // Stats has the counters, four sizes and two times, 8 bytes each, and the stores.
  EXPECT_EQ(sizeof(Stats), (key::counters.size() + 4 + 2) * sizeof(std::uint64_t) + sizeof(Stats::stores));
  // StoreStats has a name, two words and three flags, the counters and three times.
  EXPECT_EQ(sizeof(StoreStats),
            sizeof(std::string) + 16 + (key::store_counters.size() + 3) * sizeof(std::uint64_t));
}

TEST_F(Lifetime, IsNothingBeforeTheFirstCache) {
  expect_equal(read_lifetime(root()), {});
  expect_equal(read_lifetime(root() / "missing"), {});
  EXPECT_FALSE(std::filesystem::exists(root() / "missing"));
}

TEST_F(Lifetime, AddsUpEveryCounter) {
  ASSERT_TRUE(add_to_lifetime(root(), sample()));
  expect_equal(read_lifetime(root()), sample());
  ASSERT_TRUE(add_to_lifetime(root(), sample(5)));
  expect_equal(read_lifetime(root()), sample(6));
}

TEST_F(Lifetime, MakesTheDirectory) {
  ASSERT_TRUE(add_to_lifetime(root() / "a" / "b", sample()));
  expect_equal(read_lifetime(root() / "a" / "b"), sample());
}

TEST_F(Lifetime, IsJsonForPeople) {
  ASSERT_TRUE(add_to_lifetime(root(), sample()));
  const auto json = nlohmann::json::parse(fakes::read_file(file()));
  EXPECT_EQ(json.at("version"), 1);
  EXPECT_EQ(json.at("sessions"), 1);
  EXPECT_EQ(json.at("requests"), 10);
  EXPECT_EQ(json.at("compile_time_saved_ns"), 200);
}

TEST_F(Lifetime, MergesEightProcessesExactly) {
  constexpr std::uint64_t processes = 8;
  constexpr std::uint64_t rounds = 25;
  std::vector<std::unique_ptr<fakes::Child>> children;
  for (std::uint64_t p = 0; p < processes; ++p) {
    children.push_back(std::make_unique<fakes::Child>([this](const fakes::Child::Report& report) {
      for (std::uint64_t i = 0; i < rounds; ++i)
        if (const auto added = add_to_lifetime(root(), sample()); !added) return report(added.error().message());
      report("done");
    }));
  }
  for (auto& child : children) EXPECT_EQ(child->report(), "done");
  expect_equal(read_lifetime(root()), sample(processes * rounds));
}

TEST_F(Lifetime, StartsAnewWhereTheFileIsNotToBeUnderstood) {
  for (const std::string& text :
       {std::string(), std::string("garbage"), std::string("{\"requests\": 5"), std::string("[1, 2]"),
        std::string("null"), std::string("\xff\xfe\0", 3),
        std::string(R"({"requests": "many", "sessions": -3, "compiles": 1.5})"),
        std::string(R"({"requests": {"a": 1}, "sessions": [], "compile_time_ns": null})"),
        std::string(100'000, '['), "{\"requests\":" + std::string(100'000, '['), std::string(1'000'000, '{')}) {
    fakes::write_file(file(), text);
    expect_equal(read_lifetime(root()), {});
    ASSERT_TRUE(add_to_lifetime(root(), sample()));
    expect_equal(read_lifetime(root()), sample());
  }
}

TEST_F(Lifetime, StartsAnewWhereTheFileIsHuge) {
  fakes::write_file(file(), "{\"requests\": 7}");
  if (truncate(file().c_str(), off_t{1} << 40) != 0) GTEST_SKIP() << "this file system has no such files";
  expect_equal(read_lifetime(root()), {});
  ASSERT_TRUE(add_to_lifetime(root(), sample()));
  expect_equal(read_lifetime(root()), sample());
}

TEST_F(Lifetime, StartsAnewWhereTheFileHasKeysWithoutEnd) {
  std::string text = "{\"requests\": 7";
  for (int i = 0; i < 400'000; ++i) text.append(", \"").append(std::to_string(i)).append("\": 0");
  fakes::write_file(file(), text + "}");
  expect_equal(read_lifetime(root()), {});
  ASSERT_TRUE(add_to_lifetime(root(), sample()));
  expect_equal(read_lifetime(root()), sample());
}

TEST_F(Lifetime, KeepsWhatItUnderstandsOfAnUnknownFile) {
  fakes::write_file(file(), R"({"version": 99, "requests": 7, "news": [1], "compiles": "?"})");
  EXPECT_EQ(read_lifetime(root()).totals.requests, 7U);
  EXPECT_EQ(read_lifetime(root()).totals.compiles, 0U);
}

TEST_F(Lifetime, SurvivesAbsurdTimes) {
  for (const std::uint64_t time : {std::uint64_t{1} << 63, std::numeric_limits<std::uint64_t>::max(),
                                   std::uint64_t{std::numeric_limits<std::int64_t>::max()}}) {
    nlohmann::json json;
    json["requests"] = 1;
    json["compile_time_ns"] = json["compile_time_saved_ns"] = time;
    fakes::write_file(file(), json.dump());
    const std::string answer = fakes::in_child([this]() -> std::string {
      if (!add_to_lifetime(root(), sample())) return "not added";
      const LifetimeStats after = read_lifetime(root());
      return after.totals.compile_time >= 0ns && after.totals.compile_time_saved >= 0ns ? "fine" : "negative";
    });
    EXPECT_EQ(answer, "fine") << time;
    EXPECT_EQ(read_lifetime(root()).totals.requests, 11U);
  }
}

TEST_F(Lifetime, IsNotReadThroughASymlinkNorWrittenThroughIt) {
  const fakes::TemporaryFolder elsewhere;
  ASSERT_TRUE(add_to_lifetime(elsewhere.path(), sample()));
  std::filesystem::create_symlink(elsewhere.path() / "cache_stats.json", file());
  expect_equal(read_lifetime(root()), {});
  ASSERT_TRUE(add_to_lifetime(root(), sample(3)));
  expect_equal(read_lifetime(root()), sample(3));
  expect_equal(read_lifetime(elsewhere.path()), sample());
}

TEST_F(Lifetime, DoesNotWaitForAFifo) {
  ASSERT_EQ(mkfifo(file().c_str(), 0600), 0);
  expect_equal(read_lifetime(root()), {});
  ASSERT_TRUE(add_to_lifetime(root(), sample()));
  expect_equal(read_lifetime(root()), sample());
}

TEST_F(Lifetime, IsNotStoppedByAProcessThatDiedWithTheLock) {
  fakes::Child holder([this](const fakes::Child::Report& report) {
    const base::Folder folder = base::Folder::open(root(), false).value();
    const base::FileHandle lock_file = folder.open_lock_file(".lock").value();
    const auto lock = base::FileLock::acquire(lock_file, 0, 0ms);
    report(lock ? "held" : "not held");
    for (;;) pause();
  });
  ASSERT_EQ(holder.report(), "held");
  holder.kill();
  ASSERT_TRUE(add_to_lifetime(root(), sample()));
  expect_equal(read_lifetime(root()), sample());
}

TEST_F(Lifetime, WhereNothingCanBeWrittenIsAnError) {
  fakes::write_file(root() / "file", "x");
  EXPECT_FALSE(add_to_lifetime(root() / "file", sample()));
  std::filesystem::create_directory(file());
  EXPECT_FALSE(add_to_lifetime(root(), sample()));
  expect_equal(read_lifetime(root()), {});
}

}  // namespace
}  // namespace kiln::store
