#include "backend/vulkan/memory.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <kiln/vulkan.hpp>

#include "backend/launch_checks.hpp"
#include "base/try.hpp"

namespace kiln::vulkan {
namespace {

constexpr VkMemoryPropertyFlags reachable =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
constexpr VkMemoryPropertyFlags ordinary =
    reachable | VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT;

bool all_of(VkMemoryPropertyFlags flags, VkMemoryPropertyFlags wanted) { return (flags & wanted) == wanted; }

/// The score of a memory type for a use; higher is better, negative is unusable.
int score(VkMemoryPropertyFlags flags, DeviceBuffer::Use use) {
  // Protected, lazily allocated and vendor-specific memory types have special rules.
  if ((flags & ~ordinary) != 0) return -1;
  const bool local = all_of(flags, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
  const int cached = all_of(flags, VK_MEMORY_PROPERTY_HOST_CACHED_BIT) ? 1 : 0;
  if (use == DeviceBuffer::Use::staging) return all_of(flags, reachable) ? 2 * cached + (local ? 0 : 1) : -1;
  // Storage must be device-local: a fallback to host memory would hide that the device is out of memory.
  return local ? (all_of(flags, reachable) ? 2 : 0) + cached : -1;
}

/// The memory types to try, best first. Their heaps have at least `bytes` bytes in all.
std::vector<std::uint32_t> types_for(const VkPhysicalDeviceMemoryProperties& memory, std::uint32_t allowed,
                                     std::uint64_t bytes, DeviceBuffer::Use use) {
  std::vector<std::uint32_t> types;
  for (std::uint32_t type = 0; type < memory.memoryTypeCount; ++type)
    if ((allowed >> type & 1U) != 0 && score(memory.memoryTypes[type].propertyFlags, use) >= 0 &&
        memory.memoryHeaps[memory.memoryTypes[type].heapIndex].size >= bytes)
      types.push_back(type);
  std::stable_sort(types.begin(), types.end(), [&](std::uint32_t a, std::uint32_t b) {
    return score(memory.memoryTypes[a].propertyFlags, use) > score(memory.memoryTypes[b].propertyFlags, use);
  });
  return types;
}

}  // namespace

Result<std::unique_ptr<DeviceBuffer>> DeviceBuffer::allocate(std::shared_ptr<Context> owner, std::size_t bytes,
                                                             Use use) {
  Context& context = *owner;
  const std::string doing = fmt::format("allocating {} bytes", bytes);
  // The limit on storage buffers does not apply to staging memory, because programs do not access it.
  const std::uint64_t most =
      use == Use::staging ? context.physical.max_allocation
                          : std::min<std::uint64_t>(context.physical.max_allocation,
                                                    context.physical.properties.limits.maxStorageBufferRange);
  if (bytes > most)
    return Error(ErrorCode::out_of_memory, fmt::format("{}: a buffer can have at most {} on {}", doing, most,
                                                       context.physical.properties.deviceName));
  auto buffer = std::make_unique<DeviceBuffer>(std::move(owner), bytes);
  VkBufferCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  info.size = backend::allocated_bytes(bytes);
  info.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  if (use == Use::storage)
    info.usage |= VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT |
                  VK_BUFFER_USAGE_STORAGE_TEXEL_BUFFER_BIT | VK_BUFFER_USAGE_UNIFORM_TEXEL_BUFFER_BIT;
  if (context.families.size() > 1) {
    info.sharingMode = VK_SHARING_MODE_CONCURRENT;
    info.queueFamilyIndexCount = static_cast<std::uint32_t>(context.families.size());
    info.pQueueFamilyIndices = context.families.data();
  }
  KILN_TRY(check(context.vk->CreateBuffer(context.device, &info, nullptr, &buffer->buffer_), doing));
  VkMemoryRequirements needs{};
  context.vk->GetBufferMemoryRequirements(context.device, buffer->buffer_, &needs);
  VkResult allocated = VK_ERROR_OUT_OF_DEVICE_MEMORY;
  for (const std::uint32_t type : types_for(context.physical.memory, needs.memoryTypeBits, needs.size, use)) {
    VkMemoryAllocateInfo memory{};
    memory.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
    memory.allocationSize = needs.size;
    memory.memoryTypeIndex = type;
    allocated = context.vk->AllocateMemory(context.device, &memory, nullptr, &buffer->memory_);
    // The host may be able to access only a small part of the GPU's memory, so try the next type.
    if (allocated == VK_ERROR_OUT_OF_DEVICE_MEMORY || allocated == VK_ERROR_OUT_OF_HOST_MEMORY) continue;
    if (allocated != VK_SUCCESS) break;
    KILN_TRY(buffer->bind(context.physical.memory.memoryTypes[type].propertyFlags, use));
    return buffer;
  }
  return vulkan_error(allocated, doing);
}

Result<void> DeviceBuffer::bind(VkMemoryPropertyFlags flags, Use use) {
  const std::string doing = fmt::format("allocating {} bytes", size_);
  const DeviceCalls& vk = context_->vk;
  KILN_TRY(check(vk->BindBufferMemory(context_->device, buffer_, memory_, 0), doing));
  if (!all_of(flags, reachable) || (use == Use::storage && context_->terms.reach == Context::Reach::staged))
    return {};
  void* address = nullptr;
  KILN_TRY(check(vk->MapMemory(context_->device, memory_, 0, VK_WHOLE_SIZE, 0, &address), doing));
  mapped_ = static_cast<std::byte*>(address);
  cached_ = all_of(flags, VK_MEMORY_PROPERTY_HOST_CACHED_BIT);
  return {};
}

DeviceBuffer::~DeviceBuffer() {
  if (!owns_) return;
  const DeviceCalls& vk = context_->vk;
  if (buffer_ != nullptr) vk->DestroyBuffer(context_->device, buffer_, nullptr);
  // Freeing also unmaps the memory.
  if (memory_ != nullptr) vk->FreeMemory(context_->device, memory_, nullptr);
}

VkBuffer memory(const Buffer& buffer) noexcept {
  const auto* own = dynamic_cast<const DeviceBuffer*>(&buffer);
  return own != nullptr ? own->handle() : nullptr;
}

}  // namespace kiln::vulkan
