#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "backend/own_vulkan_device.hpp"
#include "backend/vulkan_fixture.hpp"

namespace kiln {
namespace {

using fakes::vulkan_program;
using fakes::vulkan_scale;

/// Launches in command buffers and on queues of the application's own.
class VulkanStream : public fakes::VulkanTest {
 protected:
  void SetUp() override {
    device_ = vulkan::adopt(own_.handles(), book_.log()).value();
    VkCommandPoolCreateInfo pooled{};
    pooled.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
    pooled.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
    pooled.queueFamilyIndex = own_.handles().queue_family;
    expect(own_.vk().CreateCommandPool(device(), &pooled, nullptr, &pool_));
    VkCommandBufferAllocateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
    info.commandPool = pool_;
    info.commandBufferCount = 1;
    expect(own_.vk().AllocateCommandBuffers(device(), &info, &commands_));
    VkFenceCreateInfo fence{};
    fence.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO;
    expect(own_.vk().CreateFence(device(), &fence, nullptr, &fence_));
  }
  void TearDown() override {
    device_.reset();
    own_.vk().DestroyFence(device(), fence_, nullptr);
    own_.vk().DestroyCommandPool(device(), pool_, nullptr);
  }

  VkDevice device() const { return own_.handles().device; }
  static void expect(VkResult result) { vulkan::check(result, "preparing a test").value(); }

  void begin() {
    VkCommandBufferBeginInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
    expect(own_.vk().BeginCommandBuffer(commands_, &info));
  }
  void end() { expect(own_.vk().EndCommandBuffer(commands_)); }
  /// Submits the command buffer, and waits for its end.
  void run() {
    VkSubmitInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
    info.commandBufferCount = 1;
    info.pCommandBuffers = &commands_;
    expect(own_.vk().QueueSubmit(own_.handles().queue, 1, &info, fence_));
    wait();
  }
  void wait() {
    expect(own_.vk().WaitForFences(device(), 1, &fence_, VK_TRUE, UINT64_MAX));
    expect(own_.vk().ResetFences(device(), 1, &fence_));
  }

  Module& compile(const Request& request) {
    compiled_.push_back(device_->compile(request).value());
    return *compiled_.back().module;
  }
  std::unique_ptr<vulkan::QueueStream> queue_stream() {
    return vulkan::stream(*device_, own_.handles().queue, own_.handles().queue_family).value();
  }

  const fakes::OwnVulkanDevice own_{0};
  VkCommandPool pool_ = nullptr;
  VkCommandBuffer commands_ = nullptr;
  VkFence fence_ = nullptr;
  std::vector<Compiled> compiled_;
};

TEST_F(VulkanStream, RecordsLaunchesBetweenTheCallersCommands) {
  Module& twice = compile(vulkan_scale(2));
  Module& blocks = compile(vulkan_program("blocks",
                                          "layout(binding = 0) buffer A { float a[]; };\n"
                                          "layout(binding = 1) uniform U { float u; };\n",
                                          "a[gl_GlobalInvocationID.x] += u;"));
  const auto x = upload(*device_, std::vector<float>(64, 1)).value();
  const auto y = upload(*device_, std::vector<float>(64)).value();
  const auto stream = vulkan::stream(*device_, commands_).value();
  begin();
  const float first = 5;
  own_.vk().CmdUpdateBuffer(commands_, vulkan::memory(*x), 0, sizeof first, &first);
  stream->launch(twice, {.arguments = {x, 0.5F}}).value();
  for (const float value : {100.0F, 1000.0F})
    stream->launch(blocks, {.groups = {64}, .arguments = {x, bound({.binding = 1}, value)}}).value();
  stream->launch(twice, {.groups = {0}, .arguments = {x, 0.5F}}).value();
  const VkBufferCopy copy{0, 0, 256};
  own_.vk().CmdCopyBuffer(commands_, vulkan::memory(*x), vulkan::memory(*y), 1, &copy);
  end();
  EXPECT_EQ(download<float>(*device_, *x).value(), std::vector<float>(64, 1)) << "nothing ran yet";
  run();
  std::vector<float> expected(64, 1102.5F);
  expected[0] = 1110.5F;
  EXPECT_EQ(download<float>(*device_, *x).value(), expected);
  EXPECT_EQ(download<float>(*device_, *y).value(), expected);
  // A command buffer may run more than once.
  run();
  for (float& number : expected) number = number * 2 + 1100.5F;
  expected[0] = 1110.5F;
  EXPECT_EQ(download<float>(*device_, *x).value(), expected);
}

TEST_F(VulkanStream, ACommandBufferHoldsThingsUntilTheStreamIsDestroyed) {
  auto stream = vulkan::stream(*device_, commands_).value();
  auto thing = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = thing;
  stream->hold(std::move(thing));
  stream->hold(std::make_shared<int>(2));
  EXPECT_FALSE(watched.expired());
  stream.reset();
  EXPECT_TRUE(watched.expired());
}

TEST_F(VulkanStream, AQueueRunsLaunchesWhenTheyAreSubmitted) {
  Module& twice = compile(vulkan_scale(2));
  const auto x = upload(*device_, std::vector<float>(64, 1)).value();
  const auto stream = queue_stream();
  for (int i = 0; i < 3; ++i) stream->launch(twice, {.arguments = {x, 1.0F}}).value();
  EXPECT_EQ(download<float>(*device_, *x).value()[0], 1) << "nothing ran yet";
  stream->submit({.fence = fence_}).value();
  wait();
  EXPECT_EQ(download<float>(*device_, *x).value(), std::vector<float>(64, 15));
  // Many submissions without a wait, and the one fence behind them all.
  for (int i = 0; i < 20; ++i) {
    stream->launch(twice, {.arguments = {x, -15.0F}}).value();
    stream->submit().value();
  }
  stream->submit({.fence = fence_}).value();
  wait();
  EXPECT_EQ(download<float>(*device_, *x).value(), std::vector<float>(64, 15));
}

TEST_F(VulkanStream, AQueueLetsGoOfWhatEndedSubmissionsHeld) {
  Module& twice = compile(vulkan_scale(2));
  const auto x = upload(*device_, std::vector<float>(64, 1)).value();
  const auto stream = queue_stream();
  std::array<std::weak_ptr<int>, 3> watched;
  for (auto& each : watched) {
    const auto thing = std::make_shared<int>(1);
    each = thing;
    stream->launch(twice, {.arguments = {x, 1.0F}}).value();
    stream->hold(thing);
    stream->submit().value();
  }
  stream->submit({.fence = fence_}).value();
  wait();
  stream->hold(nullptr);
  for (const auto& each : watched) EXPECT_TRUE(each.expired());
}

TEST_F(VulkanStream, SubmissionsWaitForAndSignalSemaphores) {
  const auto& vk = own_.vk();
  Module& twice = compile(vulkan_scale(2));
  Module& negative = compile(vulkan_scale(-1));
  const auto x = upload(*device_, std::vector<float>(64, 1)).value();
  std::array<vulkan::Semaphore, 2> semaphores;
  for (vulkan::Semaphore& semaphore : semaphores) {
    VkSemaphoreCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO;
    expect(vk.CreateSemaphore(device(), &info, nullptr, &semaphore.handle));
  }
  {
    const auto first = queue_stream();
    const auto second = queue_stream();
    first->launch(twice, {.arguments = {x, 1.0F}}).value();
    first->submit({.signal = {semaphores[0]}}).value();
    second->launch(negative, {.arguments = {x, 0.0F}}).value();
    second->submit({.wait = {semaphores[0]}, .signal = {semaphores[1]}}).value();
    // Semaphores without launches.
    first->submit({.wait = {semaphores[1]}, .fence = fence_}).value();
    wait();
    EXPECT_EQ(download<float>(*device_, *x).value(), std::vector<float>(64, -3));
  }
  for (const vulkan::Semaphore& semaphore : semaphores) vk.DestroySemaphore(device(), semaphore.handle, nullptr);
}

TEST_F(VulkanStream, AQueueIsSharedWithTheDevicesOwnWork) {
  Module& twice = compile(vulkan_scale(2));
  const auto x = upload(*device_, std::vector<float>(64, 1)).value();
  auto stream = queue_stream();
  stream->launch(twice, {.arguments = {x, 0.0F}}).value();
  stream->submit().value();
  // A launch of the device comes after what was submitted before.
  device_->launch(twice, {.arguments = {x, 1.0F}}).value();
  EXPECT_EQ(download<float>(*device_, *x).value(), std::vector<float>(64, 5));
  // What was not submitted is dropped.
  stream->launch(twice, {.arguments = {x, 0.0F}}).value();
  stream.reset();
  EXPECT_EQ(download<float>(*device_, *x).value(), std::vector<float>(64, 5));
}

TEST_F(VulkanStream, OfWhatIsNotTheCallersIsRefused) {
  const auto family = own_.handles().queue_family;
  const auto message = [](const auto& result) {
    EXPECT_FALSE(result);
    if (result) return std::string();
    EXPECT_EQ(result.error().code(), ErrorCode::invalid_request);
    return result.error().message();
  };
  EXPECT_EQ(message(vulkan::stream(*device_, VkCommandBuffer{})), "the command buffer is null");
  EXPECT_EQ(message(vulkan::stream(*device_, VkQueue{}, family)), "the queue is null");
  EXPECT_EQ(message(vulkan::stream(*device_, own_.handles().queue, family + 7)),
            "the queue is of family " + std::to_string(family + 7) +
                "; the device was adopted with a queue of family " + std::to_string(family));
  const auto opened = open_device("vulkan", book_.log()).value();
  EXPECT_EQ(message(vulkan::stream(*opened, own_.handles().queue, family)),
            opened->info().name + " has no queue of the caller's; open the device with vulkan::adopt()");
}

}  // namespace
}  // namespace kiln
