#include "kernels/tune/use.hpp"

#include <algorithm>

#include <gtest/gtest.h>

namespace kiln::tune {
namespace {

using std::chrono::nanoseconds;

TEST(Average, TellsAfterEnoughRunsAndFollowsThem) {
  Average average;
  for (unsigned i = 1; i < Average::enough; ++i) {
    average.add(nanoseconds(1000));
    EXPECT_FALSE(average.tells());
  }
  average.add(nanoseconds(1000));
  EXPECT_TRUE(average.tells());
  EXPECT_EQ(average.time(), nanoseconds(1000));
  for (int i = 0; i < 100; ++i) average.add(nanoseconds(2000));
  EXPECT_NEAR(static_cast<double>(average.time().count()), 2000, 20);
}

TEST(Average, OneThatWasHeldUpCountsForLittle) {
  Average average;
  for (int i = 0; i < 50; ++i) average.add(nanoseconds(1000));
  average.add(std::chrono::seconds(1));
  EXPECT_LT(average.time(), nanoseconds(1200));
}

TEST(Use, AShareOfTheCallsIsForEachRival) {
  Use use{.best = Variant{1}, .rivals = {Variant{2}, Variant{3}}};
  std::vector<int> ran;
  for (use.calls = 1; use.calls <= 1000; ++use.calls) ran.push_back(use.next(0.1).front());
  EXPECT_EQ(std::ranges::count(ran, 1), 900);
  EXPECT_EQ(std::ranges::count(ran, 2), 50);
  EXPECT_EQ(std::ranges::count(ran, 3), 50);
  ran.clear();
  for (use.calls = 1; use.calls <= 1000; ++use.calls) ran.push_back(use.next(0).front());
  EXPECT_EQ(std::ranges::count(ran, 1), 1000);
}

}  // namespace
}  // namespace kiln::tune
