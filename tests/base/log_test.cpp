#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>
#include <kiln/log.hpp>

namespace kiln {
namespace {

constexpr LogLevel levels[] = {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error};

/// What a log made without arguments writes when KILN_LOG has that value; null unsets it.
std::string default_output(const char* wanted) {
  if (wanted != nullptr) {
    setenv("KILN_LOG", wanted, 1);
  } else {
    unsetenv("KILN_LOG");
  }
  testing::internal::CaptureStderr();
  const Log log;
  log.debug("a {detail}");
  log.info("a {fact}");
  log.warning("a {worry}");
  log.error("a {mishap}");
  unsetenv("KILN_LOG");
  return testing::internal::GetCapturedStderr();
}

/// Which of the four messages are in an output.
std::string told(const std::string& output) {
  std::string which;
  for (const char* message : {"detail", "fact", "worry", "mishap"})
    if (output.find(std::string("a {") + message + "}") != std::string::npos) which += message[0];
  return which;
}

TEST(Log, RecordNamesTheThreadThatLogged) {
  std::vector<LogRecord> records;
  const Log log(LogLevel::debug, [&records](const LogRecord& record) { records.push_back(record); });
  std::string expected;
  std::thread named([&] {
    pthread_setname_np(pthread_self(), "potter");
    expected = fmt::format("potter/{}", gettid());
    log.info("from a thread");
  });
  named.join();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].thread, expected);
  EXPECT_EQ(records[0].message, "from a thread");
}

TEST(Log, RecordNamesAThreadWhoseNameIsAsLongAsCanBe) {
  std::string thread;
  const Log log(LogLevel::debug, [&thread](const LogRecord& record) { thread = record.thread; });
  std::thread([&] {
    pthread_setname_np(pthread_self(), "fifteen_letters");
    log.info("");
  }).join();
  EXPECT_TRUE(thread.starts_with("fifteen_letters/")) << thread;
}

TEST(Log, PassesOnWhatIsAtLeastItsLevel) {
  for (const LogLevel bound : levels) {
    std::vector<LogLevel> seen;
    const Log log(bound, [&seen](const LogRecord& record) { seen.push_back(record.level); });
    std::vector<LogLevel> expected;
    for (const LogLevel level : levels) {
      log.write(level, "message");
      EXPECT_EQ(log.enabled(level), level >= bound);
      if (level >= bound) expected.push_back(level);
    }
    EXPECT_EQ(seen, expected);
  }
}

TEST(Log, EachFunctionHasItsLevel) {
  std::vector<LogLevel> seen;
  const Log log(LogLevel::debug, [&seen](const LogRecord& record) { seen.push_back(record.level); });
  log.debug("");
  log.info("");
  log.warning("");
  log.error("");
  EXPECT_EQ(seen, std::vector<LogLevel>(std::begin(levels), std::end(levels)));
}

TEST(Log, ThatIsOffPassesNothingOn) {
  int seen = 0;
  const Log log(LogLevel::off, [&seen](const LogRecord&) { ++seen; });
  for (const LogLevel level : levels) log.write(level, "message");
  log.write(LogLevel::off, "no message has this level");
  EXPECT_EQ(seen, 0);
}

TEST(Log, WithoutASinkDropsEverything) {
  const Log log(LogLevel::debug, {});
  EXPECT_FALSE(log.enabled(LogLevel::error));
  log.error("to nobody");
}

TEST(Log, CopiesOutliveTheOriginal) {
  std::string seen;
  Log copy(LogLevel::off, {});
  {
    const Log original(LogLevel::debug, [&seen](const LogRecord& record) { seen = record.message; });
    copy = original;
  }
  copy.info("still there");
  EXPECT_EQ(seen, "still there");
}

TEST(Log, TakesMessagesFromManyThreads) {
  std::atomic<int> seen = 0;
  const Log log(LogLevel::info,
                [&seen](const LogRecord& record) { seen += record.message == "message" ? 1 : 1000; });
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&log] {
      for (int i = 0; i < 100; ++i) {
        log.info("message");
        log.debug("filtered");
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(seen, 800);
}

TEST(Log, WritesToStandardErrorWhatTheEnvironmentAsksFor) {
  EXPECT_EQ(told(default_output("debug")), "dfwm");
  EXPECT_EQ(told(default_output("info")), "fwm");
  EXPECT_EQ(told(default_output("warning")), "wm");
  EXPECT_EQ(told(default_output("error")), "m");
  EXPECT_EQ(told(default_output("off")), "");
}

TEST(Log, WritesWarningsWhereTheEnvironmentSaysNothingSensible) {
  for (const char* wanted : {static_cast<const char*>(nullptr), "", "loud", "DEBUG"})
    EXPECT_EQ(told(default_output(wanted)), "wm");
}

TEST(Log, NamesLevelAndThreadOnStandardError) {
  const std::string output = default_output("error");
  EXPECT_NE(output.find("error"), std::string::npos) << output;
  EXPECT_NE(output.find(fmt::format("/{}] a {{mishap}}", gettid())), std::string::npos) << output;
}

}  // namespace
}  // namespace kiln
