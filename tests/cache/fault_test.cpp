#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <random>
#include <thread>

#include "base/file.hpp"
#include "fakes/cache_fixture.hpp"
#include "fakes/cache_on_file_system.hpp"
#include "fakes/child.hpp"
#include "fakes/faulty_file_system.hpp"
#include "fakes/files.hpp"
#include "store/directory.hpp"

namespace kiln {
namespace {

using fakes::FaultyFileSystem;
using fakes::request;
using Fault = FaultyFileSystem::Fault;

/// With KILN_FAULTS=all, every fault; otherwise those that tell the most.
bool all_faults() {
  const char* asked = std::getenv("KILN_FAULTS");
  return asked != nullptr && std::string_view(asked) == "all";
}

std::string source_of(int i) { return "source of program " + std::to_string(i); }

/// Programs 0 to 4, of which 0 is a neighbour that was saved before and 4 is damaged on disk.
class Faults : public fakes::CacheTest {
 protected:
  static constexpr int programs = 5;

  CacheOptions options_for(const std::filesystem::path& directory) {
    CacheOptions options = this->options();
    options.directory = directory;
    // Whoever compiles saves, so that calls come in one order.
    options.write_queue = 0;
    return options;
  }

  /// A directory as it is before something happens to it.
  std::filesystem::path prepare() {
    const auto directory = place_.path() / ("cache_" + std::to_string(directories_++));
    {
      Cache cache(backend_, options_for(directory));
      cache.get(request(0)).value();
      cache.get(request(programs - 1)).value();
    }
    const auto path =
        directory / backend_->identity().folder() / store::entry_file_name(request(programs - 1).key());
    std::string bytes = fakes::read_file(path);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    fakes::write_file(path, bytes);
    return directory;
  }

  /// All that a process does with a cache. Whether each program was the right one.
  bool use(const std::filesystem::path& directory, const base::FileSystem& system, Durability durability) {
    CacheOptions options = options_for(directory);
    options.durability = durability;
    bool right = true;
    {
      const auto cache = fakes::cache_on(system, backend_, options);
      for (int round = 0; round < 2; ++round) {
        for (int i = 0; i < programs; ++i) {
          const auto program = cache->get(request(i));
          right = right && program && text(*program) == source_of(i);
        }
        cache->flush();
        cache->trim();
      }
      static_cast<void>(cache->prune({.max_age = std::chrono::hours(1000)}));
      static_cast<void>(cache->stats());
    }
    return right;
  }

  /// What is wrong with a directory, once all is well again; nothing where nothing is.
  std::string problem_of(const std::filesystem::path& directory) {
    if (const auto pruned = prune(directory, {}); !pruned) return pruned.error().message();
    const auto device = directory / backend_->identity().folder();
    for (const auto& folder : {directory, device})
      for (const std::string& name : fakes::names_in(folder))
        if (base::Folder::is_temporary(name)) return name + " outlives a prune";
    for (int i = 0; i < programs - 1; ++i) {
      const std::string name = store::entry_file_name(request(i).key());
      if (!std::filesystem::exists(device / name)) {
        if (i == 0) return "the neighbour is gone";
        continue;
      }
      if (const auto entry = store::read_entry(device, name); !entry) return name + ": " + entry.error().message();
    }
    const int before = backend_->compiles;
    Cache cache(backend_, options_for(directory));
    for (int i = 0; i < programs; ++i)
      if (const auto program = cache.get(request(i)); !program || text(*program) != source_of(i))
        return request(i).name() + " is not what it should be";
    for (int i = 0; i < programs; ++i)
      if (!std::filesystem::exists(device / store::entry_file_name(request(i).key())))
        return request(i).name() + " is not kept again";
    if (backend_->compiles - before > programs - 1) return "the neighbour was compiled again";
    return {};
  }

  /// Goes wrong at each call, one after the other, until a run is clean. How many went wrong.
  std::uint64_t sweep(FaultyFileSystem::Plan plan, Durability durability) {
    for (std::uint64_t at = 0;; ++at) {
      plan.at = at;
      const FaultyFileSystem system(plan);
      const auto directory = prepare();
      EXPECT_TRUE(use(directory, system, durability)) << "call " << at << ", error " << plan.error;
      if (const std::string problem = problem_of(directory); !problem.empty())
        ADD_FAILURE() << problem << " after call " << at << ", error " << plan.error;
      std::filesystem::remove_all(directory);
      if (!system.went_wrong()) return at;
      if (HasFailure()) return at;
    }
  }

  const fakes::TemporaryFolder place_{fakes::memory_place()};
  int directories_ = 0;
};

TEST_F(Faults, AnyCallMayFailForAnyReason) {
  std::uint64_t cases = 0;
  std::vector<int> errors = {EIO, ENOSPC, ENOENT};
  if (all_faults()) errors.insert(errors.end(), {EACCES, EMFILE, EINTR, EROFS, ENOLCK, EAGAIN, ESTALE});
  for (const int error : errors) cases += sweep({.fault = Fault::fails, .error = error}, Durability::none);
  cases += sweep({.fault = Fault::fails, .error = EIO}, Durability::fsync);
  std::cout << cases << " calls failed\n";
  EXPECT_GT(cases, 500U);
}

TEST_F(Faults, AllCallsFromOneOnMayFail) {
  std::uint64_t cases = 0;
  std::vector<int> errors = {ENOSPC};
  if (all_faults()) errors.insert(errors.end(), {EIO, EACCES, EMFILE, ESTALE});
  for (const int error : errors)
    cases += sweep({.fault = Fault::fails, .error = error, .from_then_on = true}, Durability::none);
  std::cout << cases << " times all calls failed from one on\n";
}

TEST_F(Faults, ReadsAndWritesMayBeShort) {
  std::uint64_t cases = sweep({.fault = Fault::is_short}, Durability::none);
  cases += sweep({.fault = Fault::is_short, .from_then_on = true}, Durability::none);
  std::cout << cases << " calls may have been short\n";
}

TEST_F(Faults, AProcessMayBeKilledAtAnyCall) {
  std::uint64_t cases = 0;
  std::vector<Durability> durabilities = {Durability::fsync};
  if (all_faults()) durabilities.insert(durabilities.end(), {Durability::none, Durability::rename});
  for (const Durability durability : durabilities)
    for (const Fault fault : {Fault::kills, Fault::kills_after})
      for (std::uint64_t at = 0;; ++at, ++cases) {
        const auto directory = prepare();
        fakes::Child child([&](const fakes::Child::Report&) {
          const FaultyFileSystem system({.at = at, .fault = fault});
          static_cast<void>(use(directory, system, durability));
        });
        const int ended = child.wait();
        const std::string problem = problem_of(directory);
        ASSERT_EQ(problem, "") << "killed at call " << at;
        std::filesystem::remove_all(directory);
        if (ended == 0) break;
        ASSERT_EQ(ended, 128 + SIGKILL);
      }
  std::cout << cases << " processes were killed\n";
}

TEST_F(Faults, AProcessMayBeKilledAtAnyTime) {
  const char* asked = std::getenv("KILN_CRASH_ROUNDS");
  const int rounds = asked != nullptr ? std::atoi(asked) : 100;
  std::mt19937 random(1);
  const auto directory = prepare();
  for (int round = 0; round < rounds; ++round) {
    fakes::Child child([&](const fakes::Child::Report& report) {
      report("begins");
      for (;;) {
        static_cast<void>(use(directory, base::FileSystem::system(), Durability::none));
        std::filesystem::remove(directory / backend_->identity().folder() /
                                store::entry_file_name(request(1).key()));
      }
    });
    ASSERT_EQ(child.report(), "begins");
    // Not for anything to happen: that it is any moment is what is tried.
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 5000));
    child.kill();
    ASSERT_EQ(problem_of(directory), "") << "round " << round;
  }
  std::cout << rounds << " processes were killed\n";
}

TEST_F(Faults, AFileSystemWithoutLocksOnlyCostsCompiles) {
  class WithoutLocks final : public base::FileSystem {
    int lock(int, int, struct flock*) const override { return errno = ENOLCK, -1; }
  };
  const WithoutLocks system;
  const auto directory = prepare();
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] { right += use(directory, system, Durability::none) ? 1 : 0; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4);
  EXPECT_EQ(problem_of(directory), "");
}

}  // namespace
}  // namespace kiln
