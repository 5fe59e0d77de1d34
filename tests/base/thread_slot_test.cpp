#include "base/thread_slot.hpp"

#include <algorithm>
#include <barrier>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace kiln::base {
namespace {

constexpr std::uint32_t exclusive = ThreadSlot::exclusive_slots;

/// The numbers of that many threads that are alive at the same time.
std::vector<std::uint32_t> numbers_of(std::size_t count) {
  std::vector<std::uint32_t> numbers(count);
  std::barrier all_have_one(static_cast<std::ptrdiff_t>(count));
  std::vector<std::thread> threads;
  for (std::uint32_t& number : numbers) {
    threads.emplace_back([&number, &all_have_one] {
      number = thread_slot.number();
      all_have_one.arrive_and_wait();
      EXPECT_EQ(thread_slot.number(), number) << "a thread keeps its number";
    });
  }
  for (auto& thread : threads) thread.join();
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

/// The number of a thread that is alone.
std::uint32_t number_of_one() { return numbers_of(1)[0]; }

TEST(ThreadSlot, LiveThreadsHaveNumbersOfTheirOwnUpToThirtyTwo) {
  const auto numbers = numbers_of(exclusive);
  for (std::uint32_t i = 0; i < exclusive; ++i) EXPECT_EQ(numbers[i], i);
}

TEST(ThreadSlot, TheLowestFreeNumberIsGivenOutAgain) {
  for (int i = 0; i < 100; ++i) ASSERT_EQ(number_of_one(), 0U);
}

TEST(ThreadSlot, ThreadsBeyondThirtyTwoShare) {
  constexpr std::uint32_t more = 20;
  const auto numbers = numbers_of(exclusive + more);
  for (std::uint32_t i = 0; i < exclusive; ++i) EXPECT_EQ(numbers[i], i);
  std::set<std::uint32_t> shared(numbers.begin() + exclusive, numbers.end());
  EXPECT_GE(*shared.begin(), exclusive);
  EXPECT_LT(*shared.rbegin(), ThreadSlot::count);
  EXPECT_EQ(shared.size(), ThreadSlot::shared_slots) << "the sharers are spread";
}

TEST(ThreadSlot, TheEndOfSharersFreesNobodysNumber) {
  numbers_of(exclusive + 20);
  const auto numbers = numbers_of(exclusive);
  for (std::uint32_t i = 0; i < exclusive; ++i) EXPECT_EQ(numbers[i], i);
}

/// Looks at the thread's number when the thread ends.
struct AtThreadEnd {
  ~AtThreadEnd() {
    if (last_number != nullptr) *last_number = thread_slot.number();
  }
  std::uint32_t* last_number = nullptr;
};

TEST(ThreadSlot, AThreadLocalDestructorAfterTheClaimsEndGoesByASharedNumber) {
  std::uint32_t number = ThreadSlot::count;
  std::uint32_t last = ThreadSlot::count;
  std::thread([&] {
    // Made before the claim, and so destroyed after it.
    thread_local AtThreadEnd end;
    end.last_number = &last;
    number = thread_slot.number();
  }).join();
  EXPECT_EQ(number, 0U);
  EXPECT_GE(last, exclusive);
  EXPECT_LT(last, ThreadSlot::count);
  EXPECT_EQ(number_of_one(), 0U) << "the number was given back once, for good";
}

TEST(ThreadSlot, AThreadLocalDestructorBeforeTheClaimsEndKeepsTheNumber) {
  std::uint32_t number = ThreadSlot::count;
  std::uint32_t last = ThreadSlot::count;
  std::thread([&] {
    number = thread_slot.number();
    thread_local AtThreadEnd end;
    end.last_number = &last;
  }).join();
  EXPECT_EQ(last, number);
}

TEST(ThreadSlot, IsGivenBackWhereItWasFirstAskedForAtTheThreadsEnd) {
  std::uint32_t last = ThreadSlot::count;
  std::thread([&last] {
    thread_local AtThreadEnd end;
    end.last_number = &last;
  }).join();
  EXPECT_EQ(last, 0U);
  EXPECT_EQ(number_of_one(), 0U);
}

TEST(ThreadSlot, EvenNumbersComeFirst) {
  const auto numbers = numbers_of(exclusive / 2);
  for (std::uint32_t i = 0; i < exclusive / 2; ++i) EXPECT_EQ(numbers[i], 2 * i);
}

TEST(ThreadSlot, TheClockOfANumberGoesOnWithItsNextOwner) {
  std::uint64_t before = 0;
  for (int round = 0; round < 200; ++round) {
    std::thread([&] {
      ASSERT_EQ(thread_slot.number(), 0U);
      if (round > 0) {
        EXPECT_EQ(thread_slot.clock, before);
      }
      before = ++thread_slot.clock;
    }).join();
  }
}

TEST(ThreadSlot, ManyThreadsComingAndGoingNeverShareAnExclusiveNumber) {
  // A number's word is plain here: two owners at once would be a data race as well as a wrong count.
  static int owners[ThreadSlot::exclusive_slots];
  std::vector<std::thread> starters;
  for (int s = 0; s < 4; ++s) {
    starters.emplace_back([] {
      for (int i = 0; i < 100; ++i) {
        std::thread([] {
          const std::uint32_t number = thread_slot.number();
          if (number >= exclusive) return;
          EXPECT_EQ(++owners[number], 1);
          --owners[number];
        }).join();
      }
    });
  }
  for (auto& starter : starters) starter.join();
}

}  // namespace
}  // namespace kiln::base
