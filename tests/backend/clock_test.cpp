#include <array>

#include <gtest/gtest.h>

#include "backend/clock.hpp"

namespace kiln::backend {
namespace {

using std::chrono::nanoseconds;
using namespace std::chrono_literals;

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

Clock::Host::time_point after(nanoseconds time) { return Clock::Host::time_point(time); }

TEST(Clock, PlacesWhatRanBetweenItsQueueingAndItsEnd) {
  Clock clock;
  const auto times = clock.place({Ticks{5us, 7us}, Ticks{8us, 9us}}, after(1000us), after(1008us));
  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times[0].begin, after(1002us)) << "in the middle of where it may have been";
  EXPECT_EQ(times[0].end, after(1004us));
  EXPECT_EQ(times[1].begin, after(1005us));
  EXPECT_EQ(times[1].end, after(1006us));
}

TEST(Clock, IsNotMovedByWorkThatFitsWhatItKnows) {
  Clock clock;
  clock.learn(after(1000us), 0, 0, after(1002us));
  EXPECT_EQ(clock.place({Ticks{100us, 200us}}, after(1050us), after(9000us))[0].begin, after(1101us));
  EXPECT_EQ(clock.place({Ticks{100us, 200us}}, after(0us), after(1201us))[0].begin, after(1101us));
}

TEST(Clock, FollowsADeviceWhoseClockRunsApart) {
  Clock clock;
  clock.learn(after(0us), 0, 0, after(0us));
  EXPECT_EQ(clock.place({Ticks{90us, 95us}}, after(100us), after(120us))[0].begin, after(100us))
      << "it is too slow";
  EXPECT_EQ(clock.place({Ticks{215us, 220us}}, after(150us), after(205us))[0].end, after(205us))
      << "it is too fast";
  EXPECT_EQ(clock.place({Ticks{315us, 320us}}, after(200us), after(400us))[0].end, after(305us))
      << "and stays corrected";
}

TEST(Clock, PiecesThatWereNoWorkTakeNoTimeWhereTheyStand) {
  Clock clock;
  clock.learn(after(0us), 0, 0, after(0us));
  const auto times = clock.place({std::nullopt, Ticks{5us, 7us}, std::nullopt, Ticks{9us, 10us}, std::nullopt},
                                 after(0us), after(20us));
  ASSERT_EQ(times.size(), 5U);
  for (const std::size_t i : {0U, 2U, 4U}) EXPECT_EQ(times[i].begin, times[i].end);
  EXPECT_EQ(times[0].begin, after(5us));
  EXPECT_EQ(times[2].begin, after(7us));
  EXPECT_EQ(times[4].begin, after(10us));
}

TEST(Clock, ASubmissionWithoutWorkIsPlacedWhereItWasQueued) {
  Clock clock;
  const auto times = clock.place({std::nullopt, std::nullopt}, after(7us), after(9us));
  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times[1].end, after(7us));
  EXPECT_TRUE(clock.place({}, after(7us), after(9us)).empty());
}

}  // namespace
}  // namespace kiln::backend
