#include "backend/vulkan/queue.hpp"

namespace kiln::vulkan {

Result<void> Queue::submit(VkCommandBuffer commands, VkFence fence, std::string_view doing) {
  VkSubmitInfo info{};
  info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  info.commandBufferCount = 1;
  info.pCommandBuffers = &commands;
  const base::MutexLock lock(mutex_);
  return check(vk_.QueueSubmit(handle_, 1, &info, fence), doing);
}

void Queue::wait_idle() {
  const base::MutexLock lock(mutex_);
  vk_.QueueWaitIdle(handle_);
}

}  // namespace kiln::vulkan
