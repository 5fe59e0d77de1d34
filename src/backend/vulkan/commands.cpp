#include "backend/vulkan/commands.hpp"

#include <limits>
#include <vector>

#include "base/try.hpp"

namespace kiln::vulkan {

Result<std::unique_ptr<Commands>> Commands::create(std::shared_ptr<Context> context, Queue& queue) {
  auto commands = std::make_unique<Commands>(std::move(context), queue);
  const DeviceCalls& vk = commands->context_->vk;
  const VkDevice device = commands->context_->device;
  constexpr std::string_view doing = "making a command buffer";
  VkCommandPoolCreateInfo pool{};
  pool.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
  pool.flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT;
  pool.queueFamilyIndex = queue.family;
  KILN_TRY(check(vk->CreateCommandPool(device, &pool, nullptr, &commands->pool_), doing));
  VkCommandBufferAllocateInfo buffer{};
  buffer.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
  buffer.commandPool = commands->pool_;
  buffer.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  buffer.commandBufferCount = 1;
  KILN_TRY(check(vk->AllocateCommandBuffers(device, &buffer, &commands->command_), doing));
  VkFenceCreateInfo fence{};
  fence.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO;
  KILN_TRY(check(vk->CreateFence(device, &fence, nullptr, &commands->fence_), doing));
  return commands;
}

Commands::~Commands() {
  // A wait that fails has not waited.
  if (busy_ && !wait("ending")) queue_.wait_idle();
  const DeviceCalls& vk = context_->vk;
  vk->DestroyFence(context_->device, fence_, nullptr);
  vk->DestroyCommandPool(context_->device, pool_, nullptr);
}

void Commands::barrier(VkPipelineStageFlags after, VkAccessFlags seen) {
  VkMemoryBarrier memory{};
  memory.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  memory.srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT;
  memory.dstAccessMask = seen;
  context_->vk->CmdPipelineBarrier(command_, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, after, 0, 1, &memory, 0, nullptr,
                                   0, nullptr);
}

Result<VkCommandBuffer> Commands::open(std::string_view doing) {
  if (busy_) KILN_TRY(wait(doing));
  if (!open_) {
    const DeviceCalls& vk = context_->vk;
    KILN_TRY(descriptors_.reset(doing));
    KILN_TRY(check(vk->ResetCommandPool(context_->device, pool_, 0), doing));
    VkCommandBufferBeginInfo begin{};
    begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
    begin.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
    KILN_TRY(check(vk->BeginCommandBuffer(command_, &begin), doing));
    open_ = true;
    // What earlier submissions of others wrote is finished, but need not be visible yet.
    barrier(VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT);
  }
  return command_;
}

Result<void> Commands::copy(const DeviceBuffer& from, std::size_t from_offset, const DeviceBuffer& to,
                            std::size_t to_offset, std::size_t bytes, std::string_view doing) {
  KILN_TRY(open(doing));
  const VkBufferCopy copy{from_offset, to_offset, bytes};
  context_->vk->CmdCopyBuffer(command_, from.handle(), to.handle(), 1, &copy);
  barrier(VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT);
  return {};
}

Result<void> Commands::launch(const Module& module, std::span<const DeviceBuffer* const> buffers,
                              const Launch& launch, std::string_view doing) {
  KILN_TRY(open(doing));
  const DeviceCalls& vk = context_->vk;
  vk->CmdBindPipeline(command_, VK_PIPELINE_BIND_POINT_COMPUTE, module.pipeline());
  if (!buffers.empty()) {
    const auto set = KILN_TRY(descriptors_.describe(module, buffers, doing));
    vk->CmdBindDescriptorSets(command_, VK_PIPELINE_BIND_POINT_COMPUTE, module.layout(), 0, 1, &set, 0, nullptr);
  }
  if (!launch.parameters.empty()) {
    std::vector<std::byte> parameters = launch.parameters;
    // Vulkan counts push constants in words.
    parameters.resize((parameters.size() + 3) / 4 * 4);
    vk->CmdPushConstants(command_, module.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                         static_cast<std::uint32_t>(parameters.size()), parameters.data());
  }
  vk->CmdDispatch(command_, launch.groups[0], launch.groups[1], launch.groups[2]);
  barrier(VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT);
  return {};
}

Result<void> Commands::submit(std::string_view doing, VkSemaphore before, VkSemaphore after) {
  if (!open_) return {};
  barrier(VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT);
  KILN_TRY(check(context_->vk->EndCommandBuffer(command_), doing));
  open_ = false;
  KILN_TRY(queue_.submit(command_, before, after, fence_, doing));
  busy_ = true;
  return {};
}

Result<bool> Commands::finished(std::string_view doing) {
  if (!busy_) return true;
  const VkResult status = context_->vk->GetFenceStatus(context_->device, fence_);
  if (status == VK_NOT_READY) return false;
  KILN_TRY(check(status, doing));
  busy_ = false;
  KILN_TRY(check(context_->vk->ResetFences(context_->device, 1, &fence_), doing));
  return true;
}

Result<void> Commands::wait(std::string_view doing) {
  if (!busy_) return {};
  constexpr std::uint64_t forever = std::numeric_limits<std::uint64_t>::max();
  VkResult waited = VK_TIMEOUT;
  while (waited == VK_TIMEOUT) waited = context_->vk->WaitForFences(context_->device, 1, &fence_, VK_TRUE, forever);
  KILN_TRY(check(waited, doing));
  busy_ = false;
  return check(context_->vk->ResetFences(context_->device, 1, &fence_), doing);
}

}  // namespace kiln::vulkan
