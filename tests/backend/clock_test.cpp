#include <array>

#include <gtest/gtest.h>

#include "backend/clock.hpp"

namespace kiln::backend {
namespace {

using std::chrono::nanoseconds;

Clock::Host::time_point host(std::int64_t at) { return Clock::Host::time_point(nanoseconds(at)); }

/// When a timestamp was.
std::int64_t at(const Clock& clock, std::uint64_t stamp) {
  const std::array pieces = {Piece{0, 0}};
  const std::array stamps = {stamp};
  return nanoseconds(clock.ran(pieces, stamps).front().begin.time_since_epoch()).count();
}

TEST(Clock, TakesTheMiddleOfWhatItKnowsFirst) {
  Clock clock(1, 64);
  EXPECT_FALSE(clock.set());
  clock.learn(host(10'000), 500, 700, host(10'400));
  EXPECT_TRUE(clock.set());
  EXPECT_EQ(at(clock, 500), 10'100);
  EXPECT_EQ(at(clock, 700), 10'300);
}

TEST(Clock, KeepsToWhatItKnewAsLongAsThatCanBe) {
  Clock clock(1, 64);
  clock.learn(host(10'000), 500, 500, host(10'200));
  clock.learn(host(20'000), 10'700, 10'800, host(90'000));
  EXPECT_EQ(at(clock, 500), 10'100);
}

TEST(Clock, NeverTellsThatWorkRanBeforeItWasMadeOrAfterItWasSeen) {
  Clock clock(1, 64);
  clock.learn(host(10'000), 500, 500, host(10'200));
  clock.learn(host(50'000), 10'000, 10'500, host(50'800));
  EXPECT_EQ(at(clock, 10'000), 50'000);
  clock.learn(host(51'000), 20'000, 20'500, host(52'000));
  EXPECT_EQ(at(clock, 20'500), 52'000);
}

TEST(Clock, KnowsTheLengthOfATick) {
  Clock clock(83.5, 64);
  clock.learn(host(1'000'000), 1000, 1000, host(1'000'000));
  EXPECT_EQ(at(clock, 1100), 1'008'350);
  EXPECT_EQ(at(clock, 900), 991'650);
}

TEST(Clock, TimestampsRunOver) {
  Clock clock(1, 36);
  const std::uint64_t highest = (std::uint64_t{1} << 36U) - 1;
  clock.learn(host(1'000'000), highest - 99, highest - 99, host(1'000'000));
  EXPECT_EQ(at(clock, 50), 1'000'150);
  // What lies above the bits that count may be anything.
  EXPECT_EQ(at(clock, 50 | std::uint64_t{3} << 40U), 1'000'150);
}

}  // namespace
}  // namespace kiln::backend
