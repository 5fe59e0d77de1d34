#include "backend/vulkan/context.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace kiln::vulkan {
namespace {

/// As many as there are slots to keep apart on a busy device; each costs the driver some memory.
constexpr std::uint32_t most_queues = 8;

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
  const std::uint32_t family = physical.compute_family.value();
  const std::vector<float> priorities(std::min(physical.families[family].queues, most_queues), 1);
  VkDeviceQueueCreateInfo queues{};
  queues.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
  queues.queueFamilyIndex = family;
  queues.queueCount = static_cast<std::uint32_t>(priorities.size());
  queues.pQueuePriorities = priorities.data();
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
  std::vector<VkQueue> handles(priorities.size());
  for (std::uint32_t i = 0; i < handles.size(); ++i) functions->GetDeviceQueue(device, family, i, &handles[i]);
  return std::make_shared<Context>(std::move(instance), physical, device, handles, family, *functions, true, reach);
}

Result<std::shared_ptr<Context>> Context::adopt(std::shared_ptr<const Instance> instance, const Physical& physical,
                                                VkDevice device, VkQueue queue, std::uint32_t family) {
  auto functions = device_functions(instance->vk.GetDeviceProcAddr, device);
  if (!functions) return std::move(functions).error();
  return std::make_shared<Context>(std::move(instance), physical, device, std::vector{queue}, family, *functions,
                                   false, Reach::mapped);
}

Context::Context(std::shared_ptr<const Instance> instance, const Physical& of, VkDevice handle,
                 const std::vector<VkQueue>& queues, std::uint32_t queue_family, const DeviceFunctions& functions,
                 bool owned, Reach buffers)
    : physical(of),
      device(handle),
      family(queue_family),
      vk(functions),
      reach(buffers),
      instance_(std::move(instance)),
      owned_(owned) {
  for (const VkQueue queue : queues)
    queues_.emplace_back(vk, queue, physical.properties.limits.timestampPeriod,
                         physical.families[family].timestamp_bits);
}

Context::~Context() {
  for (const auto& [shape, layout] : layouts_) {
    vk.DestroyPipelineLayout(device, layout.pipeline, nullptr);
    vk.DestroyDescriptorSetLayout(device, layout.set, nullptr);
  }
  if (owned_) vk.DestroyDevice(device, nullptr);
}

std::shared_ptr<Queue> Context::share_queue() {
  const base::MutexLock lock(share_mutex_);
  const auto fewer = [](const Queue& a, const Queue& b) { return a.streams < b.streams; };
  // The first is for work that is waited for, as long as there are others.
  Queue& queue = *std::min_element(queues_.begin() + (queues_.size() > 1 ? 1 : 0), queues_.end(), fewer);
  ++queue.streams;
  return {&queue, [](Queue* shared) { --shared->streams; }};
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

}  // namespace kiln::vulkan
