#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "fakes/cache_fixture.hpp"
#include "fakes/child.hpp"
#include "store/directory.hpp"

namespace kiln {
namespace {

class ClosedStreams : public fakes::CacheTest {};

TEST_F(ClosedStreams, NoLogTextGetsIntoAnEntry) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer calls writing to a closed stream a race";
#endif
  constexpr int programs = 300;
  const std::string told = fakes::in_child([&]() -> std::string {
    for (int stream = 0; stream <= 2; ++stream) close(stream);
    // UndefinedBehaviorSanitizer opens pipes of its own, which then have these numbers.
    std::signal(SIGPIPE, SIG_IGN);
    CacheOptions options = this->options();
    options.log = Log(LogLevel::debug, [](const LogRecord& record) {
      static_cast<void>(!write(STDERR_FILENO, record.message.data(), record.message.size()));
    });
    Cache cache(backend_, options);
    std::vector<std::thread> threads;
    for (int number = 0; number < 3; ++number)
      threads.emplace_back([&cache, number] {
        for (int i = number; i < programs; i += 3) static_cast<void>(cache.get(fakes::request(i)).value());
      });
    std::atomic<bool> ends{false};
    std::thread printing([&ends] {
      while (!ends) static_cast<void>(!write(STDOUT_FILENO, "printed", 7));
    });
    for (auto& thread : threads) thread.join();
    cache.flush();
    ends = true;
    printing.join();
    return "done";
  });
  EXPECT_EQ(told, "done");
  const auto files = entries();
  EXPECT_EQ(files.size(), static_cast<std::size_t>(programs));
  for (const auto& file : files)
    EXPECT_TRUE(store::read_entry(file.parent_path(), file.filename())) << file << " is damaged";
}

}  // namespace
}  // namespace kiln
