#include <gtest/gtest.h>

#include "backend/device_clock.hpp"

namespace kiln::backend {
namespace {

using namespace std::chrono_literals;

DeviceClock::Host::time_point at(std::chrono::nanoseconds time) { return DeviceClock::Host::time_point(time); }

TEST(DeviceClock, PlacesWhatRanBetweenItsQueueingAndItsEnd) {
  DeviceClock clock;
  const auto times = clock.place({Ticks{5us, 7us}, Ticks{8us, 9us}}, at(1000us), at(1008us));
  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times[0].begin, at(1002us)) << "in the middle of where it may have been";
  EXPECT_EQ(times[0].end, at(1004us));
  EXPECT_EQ(times[1].begin, at(1005us));
  EXPECT_EQ(times[1].end, at(1006us));
}

TEST(DeviceClock, IsNotMovedByWorkThatFitsWhatItKnows) {
  DeviceClock clock;
  clock.observe(at(1000us), {0us, 0us}, at(1002us));
  EXPECT_EQ(clock.place({Ticks{100us, 200us}}, at(1050us), at(9000us))[0].begin, at(1101us));
  EXPECT_EQ(clock.place({Ticks{100us, 200us}}, at(0us), at(1201us))[0].begin, at(1101us));
}

TEST(DeviceClock, FollowsADeviceWhoseClockRunsApart) {
  DeviceClock clock;
  clock.observe(at(0us), {0us, 0us}, at(0us));
  EXPECT_EQ(clock.place({Ticks{90us, 95us}}, at(100us), at(120us))[0].begin, at(100us)) << "it is too slow";
  EXPECT_EQ(clock.place({Ticks{215us, 220us}}, at(150us), at(205us))[0].end, at(205us)) << "it is too fast";
  EXPECT_EQ(clock.place({Ticks{315us, 320us}}, at(200us), at(400us))[0].end, at(305us)) << "and stays corrected";
}

TEST(DeviceClock, PiecesThatWereNoWorkTakeNoTimeWhereTheyStand) {
  DeviceClock clock;
  clock.observe(at(0us), {0us, 0us}, at(0us));
  const auto times =
      clock.place({std::nullopt, Ticks{5us, 7us}, std::nullopt, Ticks{9us, 10us}, std::nullopt}, at(0us), at(20us));
  ASSERT_EQ(times.size(), 5U);
  for (const std::size_t i : {0U, 2U, 4U}) EXPECT_EQ(times[i].begin, times[i].end);
  EXPECT_EQ(times[0].begin, at(5us));
  EXPECT_EQ(times[2].begin, at(7us));
  EXPECT_EQ(times[4].begin, at(10us));
}

TEST(DeviceClock, ASubmissionWithoutWorkIsPlacedWhereItWasQueued) {
  DeviceClock clock;
  const auto times = clock.place({std::nullopt, std::nullopt}, at(7us), at(9us));
  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times[1].end, at(7us));
  EXPECT_TRUE(clock.place({}, at(7us), at(9us)).empty());
}

}  // namespace
}  // namespace kiln::backend
