#include "backend/vulkan/commands.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "base/try.hpp"

namespace kiln::vulkan {
namespace {

constexpr std::uint32_t sets_of_a_pool = 16;
constexpr std::uint32_t descriptors_of_a_pool = 4 * sets_of_a_pool;

}  // namespace

Descriptors::~Descriptors() {
  for (const Pool& pool : pools_) context_.vk->DestroyDescriptorPool(context_.device, pool.handle, nullptr);
}

Result<void> Descriptors::reset(std::string_view doing) {
  for (Pool& pool : pools_) {
    if (pool.sets_left == sets_of_a_pool) continue;
    KILN_TRY(check(context_.vk->ResetDescriptorPool(context_.device, pool.handle, 0), doing));
    pool.sets_left = sets_of_a_pool;
    pool.descriptors_left = pool.descriptors;
  }
  return {};
}

Result<Descriptors::Pool*> Descriptors::with_room(std::uint32_t descriptors, std::string_view doing) {
  const auto found = std::find_if(pools_.begin(), pools_.end(), [&](const Pool& pool) {
    return pool.sets_left > 0 && pool.descriptors_left >= descriptors;
  });
  if (found != pools_.end()) return &*found;
  Pool pool{.descriptors = std::max(descriptors_of_a_pool, 2 * descriptors), .sets_left = sets_of_a_pool};
  pool.descriptors_left = pool.descriptors;
  const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, pool.descriptors};
  VkDescriptorPoolCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO;
  info.maxSets = sets_of_a_pool;
  info.poolSizeCount = 1;
  info.pPoolSizes = &size;
  KILN_TRY(check(context_.vk->CreateDescriptorPool(context_.device, &info, nullptr, &pool.handle), doing));
  pools_.push_back(pool);
  return &pools_.back();
}

Result<VkDescriptorSet> Descriptors::describe(const Module& module, std::span<const DeviceBuffer* const> buffers,
                                              std::string_view doing) {
  const auto count = static_cast<std::uint32_t>(buffers.size());
  const auto pool = KILN_TRY(with_room(count, doing));
  const VkDescriptorSetLayout layout = module.set_layout();
  VkDescriptorSetAllocateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO;
  info.descriptorPool = pool->handle;
  info.descriptorSetCount = 1;
  info.pSetLayouts = &layout;
  VkDescriptorSet set = nullptr;
  KILN_TRY(check(context_.vk->AllocateDescriptorSets(context_.device, &info, &set), doing));
  --pool->sets_left;
  pool->descriptors_left -= count;
  std::vector<VkDescriptorBufferInfo> infos;
  for (const DeviceBuffer* buffer : buffers) infos.push_back({buffer->handle(), 0, VK_WHOLE_SIZE});
  std::vector<VkWriteDescriptorSet> writes(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    writes[i].sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
    writes[i].dstSet = set;
    writes[i].dstBinding = i;
    writes[i].descriptorCount = 1;
    writes[i].descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
    writes[i].pBufferInfo = &infos[i];
  }
  context_.vk->UpdateDescriptorSets(context_.device, count, writes.data(), 0, nullptr);
  return set;
}

Result<std::unique_ptr<Commands>> Commands::create(std::shared_ptr<Context> context, Queue& queue) {
  auto commands = std::make_unique<Commands>(std::move(context), queue);
  const DeviceCalls& vk = commands->context_->vk;
  const VkDevice device = commands->context_->device;
  constexpr std::string_view doing = "creating a command buffer";
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
  // If the wait failed, the device may still run the work.
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
    // Earlier submissions of other Commands have ended, but their writes may not be visible yet.
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

Result<void> Commands::launch(const Fitting& fitted, std::string_view doing) {
  KILN_TRY(open(doing));
  const Module& module = fitted.program;
  const DeviceCalls& vk = context_->vk;
  vk->CmdBindPipeline(command_, VK_PIPELINE_BIND_POINT_COMPUTE, module.pipeline());
  if (!fitted.buffers.empty()) {
    const auto set = KILN_TRY(descriptors_.describe(module, fitted.buffers, doing));
    vk->CmdBindDescriptorSets(command_, VK_PIPELINE_BIND_POINT_COMPUTE, module.layout(), 0, 1, &set, 0, nullptr);
  }
  if (const auto given = fitted.arguments.parameters(); !given.empty()) {
    std::vector<std::byte> parameters(given.begin(), given.end());
    // Vulkan requires whole words of push constants.
    parameters.resize((parameters.size() + 3) / 4 * 4);
    vk->CmdPushConstants(command_, module.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                         static_cast<std::uint32_t>(parameters.size()), parameters.data());
  }
  vk->CmdDispatch(command_, fitted.groups[0], fitted.groups[1], fitted.groups[2]);
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

namespace {

/// Larger transfers are split into several copies.
constexpr std::size_t largest_staging = std::size_t{16} << 20;
constexpr std::size_t smallest_staging = std::size_t{64} << 10;

}  // namespace

Result<std::unique_ptr<SyncCommands>> SyncCommands::create(std::shared_ptr<Context> context) {
  auto commands = KILN_TRY(Commands::create(context, context->first_queue()));
  return std::make_unique<SyncCommands>(std::move(context), std::move(commands));
}

Result<void> SyncCommands::run(std::string_view doing) {
  KILN_TRY(commands_->submit(doing));
  return commands_->wait(doing);
}

Result<void> SyncCommands::launch(const Fitting& fitted) {
  const std::string doing = fmt::format("launching {}", fitted.program.name());
  KILN_TRY(commands_->launch(fitted, doing));
  return run(doing);
}

Result<void> SyncCommands::stage(std::size_t bytes) {
  bytes = std::clamp(bytes, smallest_staging, largest_staging);
  if (staging_ != nullptr && staging_->size() >= bytes) return {};
  auto made = KILN_TRY(DeviceBuffer::allocate(context_, bytes, DeviceBuffer::Use::staging));
  staging_ = std::move(made);
  return {};
}

Result<void> SyncCommands::write(const DeviceBuffer& buffer, std::span<const std::byte> bytes, std::size_t offset) {
  const std::string doing = fmt::format("writing {} bytes", bytes.size());
  KILN_TRY(stage(bytes.size()));
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t size = std::min(bytes.size() - done, staging_->size());
    std::memcpy(staging_->writable(), bytes.data() + done, size);
    KILN_TRY(commands_->copy(*staging_, 0, buffer, offset + done, size, doing));
    KILN_TRY(run(doing));
    done += size;
  }
  return {};
}

Result<void> SyncCommands::read(const DeviceBuffer& buffer, std::span<std::byte> bytes, std::size_t offset) {
  const std::string doing = fmt::format("reading {} bytes", bytes.size());
  KILN_TRY(stage(bytes.size()));
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t size = std::min(bytes.size() - done, staging_->size());
    KILN_TRY(commands_->copy(buffer, offset + done, *staging_, 0, size, doing));
    KILN_TRY(run(doing));
    std::memcpy(bytes.data() + done, staging_->writable(), size);
    done += size;
  }
  return {};
}

}  // namespace kiln::vulkan
