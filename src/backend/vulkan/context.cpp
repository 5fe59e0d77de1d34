#include "backend/vulkan/context.hpp"

#include <utility>
#include <vector>

#include <fmt/format.h>

namespace kiln::vulkan {
namespace {

/// What the device can do and a program may ask for: all core features, and small numbers from Vulkan 1.2 on.
struct Features {
  VkPhysicalDeviceFeatures2 core = {};
  VkPhysicalDevice16BitStorageFeatures storage16 = {};
  VkPhysicalDevice8BitStorageFeatures storage8 = {};
  VkPhysicalDeviceShaderFloat16Int8Features arithmetic = {};

  Features(const Instance& instance, const Physical& from) {
    core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    core.pNext = &storage16;
    storage16.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES;
    storage8.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES;
    storage8.pNext = &arithmetic;
    arithmetic.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES;
    if (from.properties.apiVersion >= VK_API_VERSION_1_2) storage16.pNext = &storage8;
    instance.vk.GetPhysicalDeviceFeatures2(from.handle, &core);
    // It checks every access, for programs that are not trusted with their own indices.
    core.features.robustBufferAccess = VK_FALSE;
  }
  Features(const Features&) = delete;
  Features& operator=(const Features&) = delete;
};

}  // namespace

Result<std::shared_ptr<Context>> Context::create(std::shared_ptr<const Instance> instance, const Physical& physical,
                                                 Reach reach) {
  const std::string doing = fmt::format("starting {}", physical.properties.deviceName);
  const Features features(*instance, physical);
  const float priority = 1;
  VkDeviceQueueCreateInfo queues{};
  queues.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
  queues.queueFamilyIndex = physical.compute_family.value();
  queues.queueCount = 1;
  queues.pQueuePriorities = &priority;
  VkDeviceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
  info.pNext = &features.core;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queues;
  VkDevice device = nullptr;
  if (auto ok = check(instance->vk.CreateDevice(physical.handle, &info, nullptr, &device), doing); !ok)
    return std::move(ok).error();
  auto functions = device_functions(instance->vk.GetDeviceProcAddr, device);
  if (!functions) {
    if (const auto destroy =
            reinterpret_cast<PFN_vkDestroyDevice>(instance->vk.GetDeviceProcAddr(device, "vkDestroyDevice")))
      destroy(device, nullptr);
    return std::move(functions).error();
  }
  VkQueue queue = nullptr;
  functions->GetDeviceQueue(device, *physical.compute_family, 0, &queue);
  return std::make_shared<Context>(std::move(instance), physical, device, queue, *physical.compute_family,
                                   *functions, true, reach);
}

Result<std::shared_ptr<Context>> Context::adopt(std::shared_ptr<const Instance> instance, const Physical& physical,
                                                VkDevice device, VkQueue queue, std::uint32_t family) {
  auto functions = device_functions(instance->vk.GetDeviceProcAddr, device);
  if (!functions) return std::move(functions).error();
  return std::make_shared<Context>(std::move(instance), physical, device, queue, family, *functions, false,
                                   Reach::mapped);
}

Context::Context(std::shared_ptr<const Instance> instance, const Physical& of, VkDevice handle, VkQueue queue,
                 std::uint32_t queue_family, const DeviceFunctions& functions, bool owned, Reach buffers)
    : physical(of),
      device(handle),
      family(queue_family),
      vk(functions),
      reach(buffers),
      instance_(std::move(instance)),
      owned_(owned),
      queue_(queue) {}

Context::~Context() {
  for (const auto& [shape, layout] : layouts_) {
    vk.DestroyPipelineLayout(device, layout.pipeline, nullptr);
    vk.DestroyDescriptorSetLayout(device, layout.set, nullptr);
  }
  if (owned_) vk.DestroyDevice(device, nullptr);
}

Result<Context::Layout> Context::layout(std::uint32_t buffers, std::uint32_t parameter_bytes,
                                        std::string_view doing) {
  const base::MutexLock lock(layouts_mutex_);
  Layout& layout = layouts_[{buffers, parameter_bytes}];
  // One that could not be made is tried again by the next who asks.
  if (layout.pipeline == nullptr)
    if (auto made = make_layout(layout, buffers, parameter_bytes, doing); !made) return std::move(made).error();
  return layout;
}

Result<void> Context::make_layout(Layout& layout, std::uint32_t buffers, std::uint32_t parameter_bytes,
                                  std::string_view doing) const {
  std::vector<VkDescriptorSetLayoutBinding> bindings(buffers);
  for (std::uint32_t i = 0; i < buffers; ++i)
    bindings[i] = {i, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr};
  VkDescriptorSetLayoutCreateInfo set{};
  set.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO;
  set.bindingCount = buffers;
  set.pBindings = bindings.data();
  if (layout.set == nullptr)
    if (auto ok = check(vk.CreateDescriptorSetLayout(device, &set, nullptr, &layout.set), doing); !ok) return ok;
  // Vulkan counts push constants in words.
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, (parameter_bytes + 3) / 4 * 4};
  VkPipelineLayoutCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
  info.setLayoutCount = 1;
  info.pSetLayouts = &layout.set;
  info.pushConstantRangeCount = range.size > 0 ? 1 : 0;
  info.pPushConstantRanges = &range;
  return check(vk.CreatePipelineLayout(device, &info, nullptr, &layout.pipeline), doing);
}

Result<void> Context::submit(VkCommandBuffer commands, VkFence fence, std::string_view doing) {
  VkSubmitInfo info{};
  info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  info.commandBufferCount = 1;
  info.pCommandBuffers = &commands;
  const base::MutexLock lock(queue_mutex_);
  return check(vk.QueueSubmit(queue_, 1, &info, fence), doing);
}

void Context::wait_idle() {
  const base::MutexLock lock(queue_mutex_);
  vk.QueueWaitIdle(queue_);
}

}  // namespace kiln::vulkan
