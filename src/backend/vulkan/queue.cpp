#include "backend/vulkan/queue.hpp"

namespace kiln::vulkan {

Result<void> Queue::submit(VkCommandBuffer commands, VkSemaphore before, VkSemaphore after, VkFence fence,
                           std::string_view doing) {
  constexpr VkPipelineStageFlags all = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
  VkSubmitInfo info{};
  info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  info.waitSemaphoreCount = before != nullptr ? 1 : 0;
  info.pWaitSemaphores = &before;
  info.pWaitDstStageMask = &all;
  info.signalSemaphoreCount = after != nullptr ? 1 : 0;
  info.pSignalSemaphores = &after;
  info.commandBufferCount = 1;
  info.pCommandBuffers = &commands;
  const base::MutexLock lock(mutex_);
  return check(vk_->QueueSubmit(handle_, 1, &info, fence), doing);
}

void Queue::wait_idle() {
  const base::MutexLock lock(mutex_);
  vk_->QueueWaitIdle(handle_);
}

}  // namespace kiln::vulkan
