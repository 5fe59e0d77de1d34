#include "cache/circuit_breaker.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace kiln::cache {
namespace {

using std::chrono::milliseconds;
using Clock = CircuitBreaker::Clock;
using Turn = CircuitBreaker::Turn;

const Clock::time_point start{std::chrono::hours(1)};

/// Opens it at `start`.
void open(CircuitBreaker& breaker) {
  for (int i = 0; i < CircuitBreaker::most_failures; ++i) static_cast<void>(breaker.failed(start));
}

/// The time until it gives the next probe, in steps of a millisecond.
Clock::duration time_to_probe(CircuitBreaker& breaker, Clock::time_point from) {
  for (auto time = from;; time += milliseconds(1))
    if (breaker.ask(time) == Turn::probe) return time - from;
}

TEST(CircuitBreaker, OpensAfterThreeFailuresInARow) {
  CircuitBreaker breaker;
  EXPECT_FALSE(breaker.failed(start));
  EXPECT_FALSE(breaker.failed(start));
  EXPECT_EQ(breaker.ask(start), Turn::call);
  EXPECT_TRUE(breaker.failed(start));
  EXPECT_TRUE(breaker.is_open());
  EXPECT_EQ(breaker.ask(start), Turn::skip);
}

TEST(CircuitBreaker, StaysClosedIfASuccessIsBetweenFailures) {
  CircuitBreaker breaker;
  for (int i = 0; i < 10; ++i) {
    static_cast<void>(breaker.failed(start));
    static_cast<void>(breaker.failed(start));
    EXPECT_FALSE(breaker.succeeded());
  }
  EXPECT_EQ(breaker.ask(start), Turn::call);
}

TEST(CircuitBreaker, OpensWhenCallersHaveWaitedForTooLong) {
  CircuitBreaker breaker;
  EXPECT_FALSE(breaker.waited(start, milliseconds(150)));
  EXPECT_TRUE(breaker.waited(start, milliseconds(150)));
  EXPECT_TRUE(breaker.succeeded());
  EXPECT_FALSE(breaker.waited(start, milliseconds(150)));
}

TEST(CircuitBreaker, GivesOneProbeAtATimeAndClosesWithItsSuccess) {
  CircuitBreaker breaker;
  open(breaker);
  const auto later = start + CircuitBreaker::first_pause;
  EXPECT_EQ(breaker.ask(later), Turn::probe);
  EXPECT_EQ(breaker.ask(later), Turn::skip) << "a probe is under way";
  EXPECT_TRUE(breaker.succeeded());
  EXPECT_EQ(breaker.ask(later), Turn::call);
}

TEST(CircuitBreaker, ProbesAtGrowingDistancesOfAtMostAMinute) {
  CircuitBreaker breaker;
  open(breaker);
  auto now = start;
  Clock::duration longest{};
  for (auto pause = Clock::duration(CircuitBreaker::first_pause); now < start + std::chrono::minutes(20);
       pause = std::min<Clock::duration>(pause * 2, CircuitBreaker::longest_pause)) {
    const auto waited = time_to_probe(breaker, now);
    EXPECT_GE(waited, pause / 2 - milliseconds(1));
    EXPECT_LE(waited, pause + milliseconds(1));
    longest = std::max(longest, waited);
    now += waited;
    breaker.probe_failed(now);
  }
  EXPECT_LE(longest, CircuitBreaker::longest_pause + milliseconds(1));
}

TEST(CircuitBreaker, BreakersOfAFleetProbeAtDifferentTimes) {
  std::vector<Clock::duration> times;
  for (int i = 0; i < 20; ++i) {
    CircuitBreaker breaker;
    open(breaker);
    times.push_back(time_to_probe(breaker, start));
  }
  EXPECT_NE(*std::ranges::min_element(times), *std::ranges::max_element(times));
}

TEST(CircuitBreaker, CallsThatBeganBeforeItOpenedDoNotPostponeTheProbe) {
  CircuitBreaker breaker;
  open(breaker);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(breaker.failed(start + milliseconds(i)));
  EXPECT_EQ(breaker.ask(start + CircuitBreaker::first_pause), Turn::probe);
}

TEST(CircuitBreaker, AProbeThatIsDroppedIsGivenAgain) {
  CircuitBreaker breaker;
  open(breaker);
  const auto later = start + CircuitBreaker::first_pause;
  EXPECT_EQ(breaker.ask(later), Turn::probe);
  breaker.probe_dropped(later);
  EXPECT_EQ(breaker.ask(later), Turn::probe);
}

TEST(CircuitBreaker, AProbeThatHangsDoesNotPreventTheNextOne) {
  CircuitBreaker breaker(std::chrono::seconds(2));
  open(breaker);
  const auto later = start + CircuitBreaker::first_pause;
  EXPECT_EQ(breaker.ask(later), Turn::probe);
  EXPECT_EQ(breaker.ask(later + std::chrono::seconds(2)), Turn::skip);
  EXPECT_EQ(breaker.ask(later + std::chrono::seconds(3)), Turn::probe);
}

TEST(CircuitBreaker, CallsThatBeganBeforeItOpenedDoNotEndAProbe) {
  CircuitBreaker breaker;
  open(breaker);
  const auto later = start + CircuitBreaker::first_pause;
  EXPECT_EQ(breaker.ask(later), Turn::probe);
  EXPECT_FALSE(breaker.failed(later));
  EXPECT_EQ(breaker.ask(later + milliseconds(1)), Turn::skip) << "the probe is under way";
}

TEST(CircuitBreaker, GivesOneProbeToManyThreads) {
  CircuitBreaker breaker;
  open(breaker);
  std::atomic<int> probes{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 1000; ++k)
        if (breaker.ask(start + std::chrono::seconds(1)) == Turn::probe) ++probes;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(probes, 1);
}

}  // namespace
}  // namespace kiln::cache
