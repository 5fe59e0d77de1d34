#include <algorithm>
#include <cstring>
#include <thread>

#include <kiln/slot.hpp>

#include "contract/contract.hpp"
#include "contract/kernels.hpp"

// What every backend promises of work that nobody waits for.
namespace kiln::contract {
namespace {

class SlotContract : public Contract {
 protected:
  /// scale(FACTOR) on `count` values, in one slot.
  struct Scaling {
    std::unique_ptr<Slot> slot;
    std::unique_ptr<Buffer> x;
    std::unique_ptr<Buffer> y;
    std::size_t count = 0;
  };

  Scaling open(std::size_t count) {
    return {device_->open_slot().value(), device_->allocate(count * sizeof(float)).value(),
            device_->allocate(count * sizeof(float)).value(), count};
  }

  /// Has the slot compute y = factor * first, factor * (first + 1), … and copy it back behind the input.
  static void queue(Scaling& scaling, Module& module, int factor, float first) {
    const std::size_t bytes = scaling.count * sizeof(float);
    const auto staged = scaling.slot->staging(2 * bytes).value();
    for (std::size_t i = 0; i < scaling.count; ++i) {
      const float value = first + static_cast<float>(i);
      std::memcpy(staged.data() + i * sizeof value, &value, sizeof value);
    }
    scaling.slot->upload(*scaling.x, 0, 0, bytes).value();
    const auto groups = static_cast<std::uint32_t>((scaling.count + 63) / 64);
    scaling.slot
        ->launch(module, scale(factor)
                             .launch({groups, 1, 1}, {scaling.x.get(), scaling.y.get()},
                                     {static_cast<std::int32_t>(scaling.count), 0.0F})
                             .value())
        .value();
    scaling.slot->download(*scaling.y, 0, bytes, bytes).value();
    scaling.slot->submit().value();
  }

  static void expect_scaled(Scaling& scaling, int factor, float first) {
    const std::size_t bytes = scaling.count * sizeof(float);
    const auto staged = scaling.slot->staging(2 * bytes).value();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < scaling.count; ++i) {
      float value = 0;
      std::memcpy(&value, staged.data() + bytes + i * sizeof value, sizeof value);
      wrong += value != static_cast<float>(factor) * (first + static_cast<float>(i)) ? 1 : 0;
    }
    EXPECT_EQ(wrong, 0U);
  }
};

TEST_P(SlotContract, UploadsComputesAndDownloadsInOrder) {
  const Compiled program = device_->compile(request(scale(3))).value();
  Scaling scaling = open(1000);
  for (int round = 0; round < 5; ++round) {
    queue(scaling, *program.module, 3, static_cast<float>(round));
    scaling.slot->wait().value();
    expect_scaled(scaling, 3, static_cast<float>(round));
  }
}

TEST_P(SlotContract, AChainOfLaunchesSeesWhatTheOnesBeforeWrote) {
  const Compiled twice = device_->compile(request(scale(2))).value();
  const Compiled thrice = device_->compile(request(scale(3))).value();
  Scaling scaling = open(5000);
  const std::size_t bytes = scaling.count * sizeof(float);
  const auto staged = scaling.slot->staging(bytes).value();
  for (std::size_t i = 0; i < scaling.count; ++i) {
    const float value = 1;
    std::memcpy(staged.data() + i * sizeof value, &value, sizeof value);
  }
  scaling.slot->upload(*scaling.x, 0, 0, bytes).value();
  const Buffer* from = scaling.x.get();
  const Buffer* to = scaling.y.get();
  float expected = 1;
  for (int i = 0; i < 10; ++i) {
    const int factor = i % 2 == 0 ? 2 : 3;
    scaling.slot
        ->launch(i % 2 == 0 ? *twice.module : *thrice.module,
                 scale(factor).launch({79, 1, 1}, {from, to}, {std::int32_t{5000}, 1.0F}).value())
        .value();
    expected = expected * static_cast<float>(factor) + 1;
    std::swap(from, to);
  }
  scaling.slot->download(*from, 0, 0, bytes).value();
  scaling.slot->submit().value();
  scaling.slot->wait().value();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < scaling.count; ++i) {
    float value = 0;
    std::memcpy(&value, staged.data() + i * sizeof value, sizeof value);
    wrong += value != expected ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0U);
}

TEST_P(SlotContract, ASubmissionHasAsManyPiecesAsAreQueued) {
  const Compiled program = device_->compile(request(scale(1))).value();
  Scaling scaling = open(64);
  const std::size_t bytes = scaling.count * sizeof(float);
  for (int round = 0; round < 3; ++round) {
    const auto staged = scaling.slot->staging(bytes).value();
    std::memset(staged.data(), 0, bytes);
    scaling.slot->upload(*scaling.x, 0, 0, bytes).value();
    const int launches = 50 + 50 * round;
    float expected = 0;
    const Buffer* from = scaling.x.get();
    const Buffer* to = scaling.y.get();
    for (int i = 0; i < launches; ++i) {
      // Each has parameters of its own, which none before it may see.
      const auto offset = static_cast<float>(i);
      scaling.slot
          ->launch(*program.module, scale(1).launch({1, 1, 1}, {from, to}, {std::int32_t{64}, offset}).value())
          .value();
      expected += offset;
      std::swap(from, to);
    }
    scaling.slot->download(*from, 0, 0, bytes).value();
    scaling.slot->submit().value();
    scaling.slot->wait().value();
    const std::size_t times = scaling.slot->times().size();
    EXPECT_TRUE(times == 0 || times == static_cast<std::size_t>(launches) + 2) << times;
    float value = 0;
    std::memcpy(&value, staged.data() + bytes - sizeof value, sizeof value);
    EXPECT_EQ(value, expected);
  }
}

TEST_P(SlotContract, CopiesAndLaunchesComeInAnyOrder) {
  const Compiled program = device_->compile(request(scale(2))).value();
  Scaling scaling = open(1000);
  const std::size_t bytes = scaling.count * sizeof(float);
  const auto staged = scaling.slot->staging(4 * bytes).value();
  const auto values = [&staged, &scaling](std::size_t place) {
    return std::span(reinterpret_cast<float*>(staged.data()) + place * scaling.count, scaling.count);
  };
  const auto launch = [&](const Buffer& from, const Buffer& to, std::uint32_t groups = 16) {
    scaling.slot
        ->launch(*program.module, scale(2).launch({groups, 1, 1}, {&from, &to}, {std::int32_t{1000}, 1.0F}).value())
        .value();
  };
  for (int round = 0; round < 3; ++round) {
    std::ranges::fill(values(0), 1.0F + static_cast<float>(round));
    std::ranges::fill(values(1), 10.0F);
    launch(*scaling.x, *scaling.y, 0);
    scaling.slot->upload(*scaling.x, 0, 0, bytes).value();
    scaling.slot->download(*scaling.x, 0, 2 * bytes, bytes).value();
    launch(*scaling.x, *scaling.y);
    launch(*scaling.y, *scaling.x);
    scaling.slot->download(*scaling.x, 0, 0, bytes).value();
    scaling.slot->upload(*scaling.x, 0, bytes, 0).value();
    scaling.slot->upload(*scaling.y, 0, bytes, bytes).value();
    launch(*scaling.y, *scaling.x);
    scaling.slot->download(*scaling.x, 0, 3 * bytes, bytes).value();
    scaling.slot->submit().value();
    scaling.slot->wait().value();
    const float first = 1.0F + static_cast<float>(round);
    for (const auto& [place, expected] : {std::pair(0, 4 * first + 3), {2, first}, {3, 21.0F}})
      EXPECT_TRUE(std::ranges::all_of(values(static_cast<std::size_t>(place)), [expected = expected](float value) {
        return value == expected;
      })) << place;
    const std::vector<Ran> times = scaling.slot->times();
    EXPECT_TRUE(times.empty() || times.size() == 10) << times.size();
    EXPECT_TRUE(std::ranges::is_sorted(times, {}, &Ran::begin));
  }
}

TEST_P(SlotContract, ThreeSlotsOfAThreadKeepTheirWorkApart) {
  const Compiled program = device_->compile(request(scale(3))).value();
  std::vector<Scaling> slots;
  for (std::size_t i = 0; i < 3; ++i) slots.push_back(open(2000 + 100 * i));
  for (int round = 0; round < 10; ++round) {
    for (std::size_t i = 0; i < slots.size(); ++i)
      queue(slots[i], *program.module, 3, static_cast<float>(100 * round + static_cast<int>(i)));
    for (std::size_t i = 0; i < slots.size(); ++i) {
      while (!slots[i].slot->finished().value()) std::this_thread::yield();
      expect_scaled(slots[i], 3, static_cast<float>(100 * round + static_cast<int>(i)));
    }
  }
}

TEST_P(SlotContract, SixteenThreadsWithASlotEachComputeWhatOneDoes) {
  const Compiled program = device_->compile(request(scale(3))).value();
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      Scaling scaling = open(500 + 37 * static_cast<std::size_t>(t));
      for (int round = 0; round < 10; ++round) {
        const auto first = static_cast<float>(1000 * t + round);
        queue(scaling, *program.module, 3, first);
        scaling.slot->wait().value();
        expect_scaled(scaling, 3, first);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_P(SlotContract, TellsWhenEachPieceRan) {
  const Compiled program = device_->compile(request(scale(3))).value();
  Scaling scaling = open(100000);
  // Drivers do much when something is used for the first time.
  queue(scaling, *program.module, 3, 0);
  scaling.slot->wait().value();
  const auto before = std::chrono::steady_clock::now();
  queue(scaling, *program.module, 3, 1);
  scaling.slot->wait().value();
  const auto after = std::chrono::steady_clock::now();
  const std::vector<Ran> times = scaling.slot->times();
  ASSERT_EQ(times.size(), 3U);
  constexpr auto tolerance = std::chrono::milliseconds(20);
  for (std::size_t i = 0; i < times.size(); ++i) {
    EXPECT_LE(times[i].begin, times[i].end);
    EXPECT_GE(times[i].begin, before - tolerance);
    EXPECT_LE(times[i].end, after + tolerance);
    if (i > 0) {
      EXPECT_LE(times[i - 1].begin, times[i].begin);
    }
  }
}

TEST_P(SlotContract, StagingMemoryGrowsAndStays) {
  auto slot = device_->open_slot().value();
  const auto small = slot->staging(100).value();
  ASSERT_GE(small.size(), 100U);
  const auto large = slot->staging(3'000'000).value();
  ASSERT_GE(large.size(), 3'000'000U);
  EXPECT_EQ(slot->staging(5).value().data(), large.data());
  std::memset(large.data(), 7, large.size());
  EXPECT_EQ(slot->staging(3'000'000).value().data(), large.data());
  EXPECT_GE(slot->staging(0).value().size(), 0U);
}

TEST_P(SlotContract, StagingMemoryDoesNotGrowUntilTheEndOfTheWorkWasSeen) {
  constexpr std::size_t bytes = 4096;
  constexpr std::size_t more = 1'000'000;
  auto slot = device_->open_slot().value();
  auto buffer = device_->allocate(bytes).value();
  const auto staged = slot->staging(2 * bytes).value();
  const auto input = staged.first(bytes);
  const auto output = staged.subspan(bytes, bytes);
  const auto growing = [&] {
    const auto grown = slot->staging(more);
    return grown ? "it grew" : grown.error().message();
  };
  const std::string refused = "staging memory cannot grow while work is queued or in flight";
  for (const auto value : {std::byte{7}, std::byte{8}}) {
    std::ranges::fill(input, value);
    std::ranges::fill(output, std::byte{0});
    slot->upload(*buffer, 0, 0, bytes).value();
    slot->download(*buffer, 0, bytes, bytes).value();
    ASSERT_EQ(growing(), refused) << "while work is queued";
    EXPECT_EQ(slot->staging(more).error().code(), ErrorCode::invalid_request);
    EXPECT_EQ(slot->staging(2 * bytes).value().data(), staged.data());
    slot->submit().value();
    ASSERT_EQ(growing(), refused) << "while work is under way";
    slot->wait().value();
    EXPECT_TRUE(std::ranges::all_of(output, [value](std::byte byte) { return byte == value; }));
  }
  EXPECT_GE(slot->staging(more).value().size(), more);
}

TEST_P(SlotContract, PartsOfBuffersAreCopied) {
  auto slot = device_->open_slot().value();
  auto buffer = device_->allocate(64).value();
  const auto staged = slot->staging(64).value();
  for (std::size_t i = 0; i < 64; ++i) staged[i] = static_cast<std::byte>(i);
  slot->upload(*buffer, 0, 0, 64).value();
  slot->upload(*buffer, 16, 32, 8).value();
  slot->submit().value();
  slot->wait().value();
  slot->download(*buffer, 12, 4, 16).value();
  slot->upload(*buffer, 0, 0, 0).value();
  slot->submit().value();
  slot->wait().value();
  const std::vector<int> expected = {12, 13, 14, 15, 32, 33, 34, 35, 36, 37, 38, 39, 24, 25, 26, 27};
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(static_cast<int>(staged[4 + i]), expected[i]) << "byte " << i;
}

TEST_P(SlotContract, NothingQueuedIsFinishedAtOnce) {
  auto slot = device_->open_slot().value();
  EXPECT_TRUE(slot->finished().value());
  slot->wait().value();
  slot->submit().value();
  slot->wait().value();
  EXPECT_TRUE(slot->finished().value());
  EXPECT_TRUE(slot->times().empty());
}

TEST_P(SlotContract, ALaunchOfNoGroupsIsNoWork) {
  const Compiled program = device_->compile(request(scale(3))).value();
  Scaling scaling = open(10);
  scaling.slot
      ->launch(*program.module,
               scale(3).launch({0, 1, 1}, {scaling.x.get(), scaling.y.get()}, {std::int32_t{0}, 0.0F}).value())
      .value();
  scaling.slot->submit().value();
  scaling.slot->wait().value();
  EXPECT_LE(scaling.slot->times().size(), 1U);
}

TEST_P(SlotContract, WhatDoesNotFitIsRefused) {
  const Compiled program = device_->compile(request(scale(3))).value();
  auto other = open_device(GetParam()).value();
  auto foreign = other->allocate(64).value();
  auto buffer = device_->allocate(64).value();
  const auto code = [&](auto work) {
    auto slot = device_->open_slot().value();
    static_cast<void>(slot->staging(64).value());
    const auto result = work(*slot);
    return result ? ErrorCode::io : result.error().code();
  };
  EXPECT_EQ(code([&](Slot& slot) { return slot.upload(*buffer, 60, 0, 8); }), ErrorCode::invalid_request);
  EXPECT_EQ(code([&](Slot& slot) { return slot.download(*buffer, 0, 0, 1U << 30U); }), ErrorCode::invalid_request);
  EXPECT_EQ(code([&](Slot& slot) { return slot.upload(*foreign, 0, 0, 8); }), ErrorCode::invalid_request);
  EXPECT_EQ(code([&](Slot& slot) {
              return slot.launch(*program.module, {.groups = {1, 1, 1}, .group_size = {64, 1, 1}});
            }),
            ErrorCode::invalid_request);
}

TEST_P(SlotContract, ASlotDestroyedAtWorkWaitsForIt) {
  const Compiled program = device_->compile(request(scale(3))).value();
  for (int i = 0; i < 5; ++i) {
    Scaling scaling = open(100000);
    queue(scaling, *program.module, 3, 1);
    scaling.slot.reset();
    EXPECT_EQ(download<float>(*device_, *scaling.y).value()[7], 24.0F);
  }
}

TEST_P(SlotContract, ASlotOutlivesItsDevice) {
  open_own_device();
  const Compiled program = device_->compile(request(scale(3))).value();
  Scaling scaling = open(100);
  device_.reset();
  queue(scaling, *program.module, 3, 1);
  scaling.slot->wait().value();
  expect_scaled(scaling, 3, 1);
}

INSTANTIATE_TEST_SUITE_P(Apis, SlotContract, every_api(), name_of);

}  // namespace
}  // namespace kiln::contract
