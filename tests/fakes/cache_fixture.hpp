#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <kiln/cache.hpp>

#include "fakes/fake_backend.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln::fakes {

/// Records log messages.
class LogBook {
 public:
  Log log(LogLevel level = LogLevel::warning) {
    return Log(level, [state = state_](const LogRecord& record) {
      const std::lock_guard lock(state->mutex);
      state->records.push_back(record);
    });
  }
  std::vector<LogRecord> records() const {
    const std::lock_guard lock(state_->mutex);
    return state_->records;
  }

 private:
  struct State {
    std::mutex mutex;
    std::vector<LogRecord> records;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// Provides a temporary folder, a fake backend, and cache options that log to book_.
class CacheTest : public testing::Test {
 protected:
  CacheOptions options() {
    CacheOptions options;
    options.directory = folder_.path() / "cache";
    options.log = book_.log();
    return options;
  }
  static const std::string& text(const Program& program) { return program.as<FakeModule>().text(); }
  /// The entry files in the temporary folder.
  std::vector<std::filesystem::path> entries() const {
    std::vector<std::filesystem::path> found;
    std::error_code error;
    for (std::filesystem::recursive_directory_iterator it(folder_.path(), error), end; it != end; ++it)
      if (it->path().extension() == ".bin") found.push_back(it->path());
    return found;
  }

  TemporaryFolder folder_;
  LogBook book_;
  std::shared_ptr<FakeBackend> backend_ = std::make_shared<FakeBackend>();
};

/// Expects that every request is counted exactly once.
inline void expect_counts_add_up(const Stats& stats) {
  EXPECT_EQ(stats.requests, stats.memory_hits + stats.disk_hits + stats.bundle_hits + stats.shared_hits + stats.joined +
                                stats.compiles + stats.failures + stats.absent);
}

}  // namespace kiln::fakes
