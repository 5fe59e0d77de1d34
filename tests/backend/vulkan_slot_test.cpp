#include <algorithm>
#include <span>
#include <vector>

#include "backend/vulkan/device.hpp"
#include "backend/vulkan_fixture.hpp"

namespace kiln {
namespace {

using fakes::vulkan_scale;

class VulkanSlots : public fakes::VulkanTest {};

TEST_F(VulkanSlots, SlotsCopyMemoryTheHostDoesNotReach) {
  const auto staged = vulkan::open_vulkan_device(0, book_.log(), vulkan::Context::Reach::staged).value();
  EXPECT_TRUE(passes_through(*staged->open_slot().value(), *staged));
}

TEST_F(VulkanSlots, CopiesThatAreSubmittedApartAreInOrderWithLaunches) {
  const auto staged = vulkan::open_vulkan_device(0, book_.log(), vulkan::Context::Reach::staged).value();
  const Compiled twice = staged->compile(vulkan_scale(2)).value();
  const auto buffer = staged->allocate(256 * sizeof(float)).value();
  const float offset = 1;
  const auto bytes = std::as_bytes(std::span(&offset, 1));
  const Launch launch{.groups = {4, 1, 1}, .arguments = {buffer.get(), by_value(bytes)}};
  const auto slot = staged->open_slot().value();
  const auto memory = slot->staging(3 * buffer->size()).value();
  const std::span<float> values(reinterpret_cast<float*>(memory.data()), 3UL * 256);
  for (int round = 0; round < 20; ++round) {
    std::ranges::fill(values, static_cast<float>(round));
    slot->upload(*buffer, 0, 0, buffer->size()).value();
    slot->launch(*twice.module, launch).value();
    slot->download(*buffer, 0, buffer->size(), buffer->size()).value();
    slot->launch(*twice.module, launch).value();
    slot->download(*buffer, 0, 2 * buffer->size(), buffer->size()).value();
    slot->submit().value();
    slot->wait().value();
    EXPECT_EQ(values[256], static_cast<float>(2 * round + 1));
    EXPECT_EQ(values[3 * 256 - 1], static_cast<float>(4 * round + 3));
    EXPECT_EQ(slot->times().size(), 5U);
    EXPECT_TRUE(std::ranges::is_sorted(slot->times(), {}, &Ran::begin));
  }
}

TEST_F(VulkanSlots, GoOnWhereTheOnlyQueueHasWorkThatWasGivenUp) {
  const auto given_up = device_->open_slot().value();
  const auto slot = device_->open_slot().value();
  EXPECT_TRUE(passes_through(*slot, *device_));
  given_up->give_up();
  for (int round = 0; round < 3; ++round) EXPECT_TRUE(passes_through(*slot, *device_));
  EXPECT_TRUE(passes_through(*device_->open_slot().value(), *device_));
}

/// A context whose queues nobody submits to: four that compute and as many as are given that copy.
vulkan::Context with_queues(std::size_t copying) {
  vulkan::Physical physical;
  physical.families = {{.computes = true, .draws = false, .queues = 4, .timestamp_bits = 64},
                       {.computes = false, .draws = false, .queues = 2, .timestamp_bits = 64}};
  return {nullptr, physical, nullptr, {0, std::vector<VkQueue>(4)}, {1, std::vector<VkQueue>(copying)}, {}, {}};
}

TEST(VulkanQueues, StreamsShareOneThatComputesAndTwoThatCopy) {
  vulkan::Context context = with_queues(2);
  std::vector<vulkan::Context::Route> lanes;
  for (int i = 0; i < 6; ++i) lanes.push_back(context.share_queues());
  for (const auto& route : lanes) {
    EXPECT_EQ(route.compute, lanes[0].compute);
    EXPECT_NE(route.compute.get(), &context.first_queue());
    EXPECT_EQ(route.upload, lanes[0].upload);
    EXPECT_EQ(route.download, lanes[0].download);
    EXPECT_NE(route.upload, route.download);
  }
  // More than two lanes have use for another, and that does not wait for the results of the first.
  const auto more = context.share_queues();
  EXPECT_NE(more.compute, lanes[0].compute);
  EXPECT_EQ(more.upload, nullptr);
  EXPECT_EQ(more.download, nullptr);
  lanes.pop_back();
  EXPECT_EQ(context.share_queues().compute, lanes[0].compute);
}

TEST(VulkanQueues, WhatComesAfterAStuckOneTakesAnother) {
  vulkan::Context context = with_queues(2);
  const auto stuck = context.share_queues();
  stuck.compute->stuck = true;
  const auto next = context.share_queues();
  EXPECT_NE(next.compute, stuck.compute);
  EXPECT_EQ(next.download, nullptr);
  next.compute->stuck = true;
  const auto last = context.share_queues();
  EXPECT_FALSE(last.compute->stuck);
  last.compute->stuck = true;
  // Where all are stuck, there is nothing better.
  EXPECT_TRUE(context.share_queues().compute->stuck);
}

TEST(VulkanQueues, WithoutOnesThatCopyTheOneThatComputesDoes) {
  vulkan::Context context = with_queues(0);
  const auto route = context.share_queues();
  EXPECT_EQ(route.upload, nullptr);
  EXPECT_EQ(route.download, nullptr);
}

}  // namespace
}  // namespace kiln
