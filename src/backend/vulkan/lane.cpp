#include "backend/vulkan/lane.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include <fmt/format.h>

namespace kiln::vulkan {
namespace {

/// More goes in several copies.
constexpr std::size_t largest_staging = std::size_t{16} << 20;
constexpr std::size_t smallest_staging = std::size_t{64} << 10;

}  // namespace

Result<std::unique_ptr<Lane>> Lane::create(std::shared_ptr<Context> context) {
  auto lane = std::make_unique<Lane>(std::move(context));
  const DeviceFunctions& vk = lane->context_->vk;
  const VkDevice device = lane->context_->device;
  constexpr std::string_view doing = "making a lane";
  VkCommandPoolCreateInfo pool{};
  pool.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
  pool.flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT;
  pool.queueFamilyIndex = lane->context_->family;
  if (auto ok = check(vk.CreateCommandPool(device, &pool, nullptr, &lane->commands_), doing); !ok)
    return std::move(ok).error();
  VkCommandBufferAllocateInfo buffer{};
  buffer.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
  buffer.commandPool = lane->commands_;
  buffer.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  buffer.commandBufferCount = 1;
  if (auto ok = check(vk.AllocateCommandBuffers(device, &buffer, &lane->command_), doing); !ok)
    return std::move(ok).error();
  VkFenceCreateInfo fence{};
  fence.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO;
  if (auto ok = check(vk.CreateFence(device, &fence, nullptr, &lane->fence_), doing); !ok)
    return std::move(ok).error();
  return lane;
}

Lane::~Lane() {
  if (busy_) context_->wait_idle();
  const DeviceFunctions& vk = context_->vk;
  vk.DestroyDescriptorPool(context_->device, descriptors_, nullptr);
  vk.DestroyFence(context_->device, fence_, nullptr);
  vk.DestroyCommandPool(context_->device, commands_, nullptr);
}

void Lane::barrier(VkPipelineStageFlags after, VkAccessFlags seen) {
  VkMemoryBarrier memory{};
  memory.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  memory.srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT;
  memory.dstAccessMask = seen;
  context_->vk.CmdPipelineBarrier(command_, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, after, 0, 1, &memory, 0, nullptr, 0,
                                  nullptr);
}

Result<void> Lane::run(std::string_view doing, const std::function<void()>& record) {
  const DeviceFunctions& vk = context_->vk;
  const VkDevice device = context_->device;
  if (auto ok = check(vk.ResetCommandPool(device, commands_, 0), doing); !ok) return ok;
  VkCommandBufferBeginInfo begin{};
  begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
  begin.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  if (auto ok = check(vk.BeginCommandBuffer(command_, &begin), doing); !ok) return ok;
  // What earlier submissions of other lanes wrote is finished, but need not be visible yet.
  barrier(VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT);
  record();
  barrier(VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT);
  if (auto ok = check(vk.EndCommandBuffer(command_), doing); !ok) return ok;
  if (auto ok = context_->submit(command_, fence_, doing); !ok) return ok;
  busy_ = true;
  constexpr std::uint64_t forever = std::numeric_limits<std::uint64_t>::max();
  VkResult waited = VK_TIMEOUT;
  while (waited == VK_TIMEOUT) waited = vk.WaitForFences(device, 1, &fence_, VK_TRUE, forever);
  if (auto ok = check(waited, doing); !ok) return ok;
  busy_ = false;
  return check(vk.ResetFences(device, 1, &fence_), doing);
}

Result<VkDescriptorSet> Lane::describe(const Module& module, std::span<const DeviceBuffer* const> buffers,
                                       std::string_view doing) {
  const DeviceFunctions& vk = context_->vk;
  const VkDevice device = context_->device;
  const auto count = static_cast<std::uint32_t>(buffers.size());
  if (descriptor_room_ < count) {
    vk.DestroyDescriptorPool(device, std::exchange(descriptors_, nullptr), nullptr);
    descriptor_room_ = 0;
    const std::uint32_t room = std::max(2 * count, 8U);
    const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, room};
    VkDescriptorPoolCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO;
    info.maxSets = 1;
    info.poolSizeCount = 1;
    info.pPoolSizes = &size;
    if (auto ok = check(vk.CreateDescriptorPool(device, &info, nullptr, &descriptors_), doing); !ok)
      return std::move(ok).error();
    descriptor_room_ = room;
  }
  if (auto ok = check(vk.ResetDescriptorPool(device, descriptors_, 0), doing); !ok) return std::move(ok).error();
  const VkDescriptorSetLayout layout = module.set_layout();
  VkDescriptorSetAllocateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO;
  info.descriptorPool = descriptors_;
  info.descriptorSetCount = 1;
  info.pSetLayouts = &layout;
  VkDescriptorSet set = nullptr;
  if (auto ok = check(vk.AllocateDescriptorSets(device, &info, &set), doing); !ok) return std::move(ok).error();
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
  vk.UpdateDescriptorSets(device, count, writes.data(), 0, nullptr);
  return set;
}

Result<void> Lane::launch(const Module& module, std::span<const DeviceBuffer* const> buffers,
                          const Launch& launch) {
  const std::string doing = fmt::format("launching {}", module.name());
  VkDescriptorSet set = nullptr;
  if (!buffers.empty()) {
    auto described = describe(module, buffers, doing);
    if (!described) return std::move(described).error();
    set = *described;
  }
  std::vector<std::byte> parameters = launch.parameters;
  // Vulkan counts push constants in words.
  parameters.resize((parameters.size() + 3) / 4 * 4);
  return run(doing, [&] {
    const DeviceFunctions& vk = context_->vk;
    vk.CmdBindPipeline(command_, VK_PIPELINE_BIND_POINT_COMPUTE, module.pipeline());
    if (set != nullptr)
      vk.CmdBindDescriptorSets(command_, VK_PIPELINE_BIND_POINT_COMPUTE, module.layout(), 0, 1, &set, 0, nullptr);
    if (!parameters.empty())
      vk.CmdPushConstants(command_, module.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                          static_cast<std::uint32_t>(parameters.size()), parameters.data());
    vk.CmdDispatch(command_, launch.groups[0], launch.groups[1], launch.groups[2]);
  });
}

Result<void> Lane::stage(std::size_t bytes) {
  bytes = std::clamp(bytes, smallest_staging, largest_staging);
  if (staging_ != nullptr && staging_->size() >= bytes) return {};
  auto made = DeviceBuffer::allocate(context_, bytes, DeviceBuffer::Use::staging);
  if (!made) return std::move(made).error();
  staging_ = std::move(*made);
  return {};
}

Result<void> Lane::write(const DeviceBuffer& buffer, std::span<const std::byte> bytes, std::size_t offset) {
  if (auto ok = stage(bytes.size()); !ok) return ok;
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t size = std::min(bytes.size() - done, staging_->size());
    std::memcpy(staging_->writable(), bytes.data() + done, size);
    const VkBufferCopy copy{0, offset + done, size};
    const auto record = [&] {
      context_->vk.CmdCopyBuffer(command_, staging_->handle(), buffer.handle(), 1, &copy);
    };
    if (auto ok = run(fmt::format("writing {} bytes", bytes.size()), record); !ok) return ok;
    done += size;
  }
  return {};
}

Result<void> Lane::read(const DeviceBuffer& buffer, std::span<std::byte> bytes, std::size_t offset) {
  if (auto ok = stage(bytes.size()); !ok) return ok;
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t size = std::min(bytes.size() - done, staging_->size());
    const VkBufferCopy copy{offset + done, 0, size};
    const auto record = [&] {
      context_->vk.CmdCopyBuffer(command_, buffer.handle(), staging_->handle(), 1, &copy);
    };
    if (auto ok = run(fmt::format("reading {} bytes", bytes.size()), record); !ok) return ok;
    std::memcpy(bytes.data() + done, staging_->writable(), size);
    done += size;
  }
  return {};
}

}  // namespace kiln::vulkan
