#pragma once

#include <vulkan/vulkan.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

inline void check(VkResult result) {
  if (result != VK_SUCCESS) throw std::runtime_error("a call of Vulkan failed");
}

/// An application's own device, queue, command buffer and fence.
struct Context {
  VkInstance instance = nullptr;
  VkPhysicalDevice physical = nullptr;
  VkDevice device = nullptr;
  VkQueue queue = nullptr;
  VkCommandPool pool = nullptr;
  VkCommandBuffer commands = nullptr;
  VkFence fence = nullptr;
  static constexpr std::uint32_t family = 0;

  /// False if there is no Vulkan here.
  bool open() {
    const VkApplicationInfo application{
        VK_STRUCTURE_TYPE_APPLICATION_INFO, nullptr, nullptr, 0, nullptr, 0, VK_API_VERSION_1_1};
    const VkInstanceCreateInfo instance_info{
        VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, nullptr, 0, &application, 0, nullptr, 0, nullptr};
    if (vkCreateInstance(&instance_info, nullptr, &instance) != VK_SUCCESS) return false;
    std::uint32_t one = 1;
    if (vkEnumeratePhysicalDevices(instance, &one, &physical) < 0 || one == 0) return false;
    const float priority = 1;
    const VkDeviceQueueCreateInfo queues{
        VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, nullptr, 0, family, 1, &priority};
    const VkDeviceCreateInfo device_info{
        VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, nullptr, 0, 1, &queues, 0, nullptr, 0, nullptr, nullptr};
    check(vkCreateDevice(physical, &device_info, nullptr, &device));
    vkGetDeviceQueue(device, family, 0, &queue);
    const VkCommandPoolCreateInfo pool_info{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr, 0, family};
    check(vkCreateCommandPool(device, &pool_info, nullptr, &pool));
    const VkCommandBufferAllocateInfo commands_info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, pool,
                                                    VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
    check(vkAllocateCommandBuffers(device, &commands_info, &commands));
    const VkFenceCreateInfo fence_info{VK_STRUCTURE_TYPE_FENCE_CREATE_INFO, nullptr, 0};
    check(vkCreateFence(device, &fence_info, nullptr, &fence));
    return true;
  }
  ~Context() {
    if (device != nullptr) {
      vkDestroyFence(device, fence, nullptr);
      vkDestroyCommandPool(device, pool, nullptr);
      vkDestroyDevice(device, nullptr);
    }
    if (instance != nullptr) vkDestroyInstance(instance, nullptr);
  }

  void begin() const {
    const VkCommandBufferBeginInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr,
                                        VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT, nullptr};
    check(vkBeginCommandBuffer(commands, &info));
  }
  void submit_and_wait() const {
    check(vkEndCommandBuffer(commands));
    const VkSubmitInfo info{VK_STRUCTURE_TYPE_SUBMIT_INFO, nullptr, 0, nullptr, nullptr, 1, &commands, 0, nullptr};
    check(vkQueueSubmit(queue, 1, &info, fence));
    check(vkWaitForFences(device, 1, &fence, VK_TRUE, UINT64_MAX));
  }
};

/// A storage buffer in memory that the host sees.
struct HostBuffer {
  HostBuffer(const Context& of, const std::vector<float>& numbers) : device(of.device) {
    const VkDeviceSize bytes = numbers.size() * sizeof(float);
    VkBufferCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
    info.size = bytes;
    info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT;
    check(vkCreateBuffer(device, &info, nullptr, &handle));
    VkMemoryRequirements needs{};
    vkGetBufferMemoryRequirements(device, handle, &needs);
    VkPhysicalDeviceMemoryProperties types{};
    vkGetPhysicalDeviceMemoryProperties(of.physical, &types);
    constexpr VkMemoryPropertyFlags seen =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    VkMemoryAllocateInfo allocation{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, nullptr, needs.size, 0};
    while ((needs.memoryTypeBits >> allocation.memoryTypeIndex & 1) == 0 ||
           (types.memoryTypes[allocation.memoryTypeIndex].propertyFlags & seen) != seen)
      ++allocation.memoryTypeIndex;
    check(vkAllocateMemory(device, &allocation, nullptr, &memory));
    check(vkBindBufferMemory(device, handle, memory, 0));
    void* mapped = nullptr;
    check(vkMapMemory(device, memory, 0, bytes, 0, &mapped));
    content = static_cast<float*>(mapped);
    std::memcpy(content, numbers.data(), bytes);
  }
  ~HostBuffer() {
    vkDestroyBuffer(device, handle, nullptr);
    vkFreeMemory(device, memory, nullptr);
  }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  VkDevice device;
  VkBuffer handle = nullptr;
  VkDeviceMemory memory = nullptr;
  float* content = nullptr;
};
