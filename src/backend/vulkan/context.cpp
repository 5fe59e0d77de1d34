#include "backend/vulkan/context.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backend/vulkan/features.hpp"
#include "base/try.hpp"

namespace kiln::vulkan {

Result<void> Queue::submit(VkCommandBuffer commands, const Semaphores& semaphores, VkFence fence,
                           std::string_view doing) {
  const auto handles_of = [](std::span<const Semaphore> all) {
    std::vector<VkSemaphore> handles(all.size());
    std::ranges::transform(all, handles.begin(), &Semaphore::handle);
    return handles;
  };
  const auto values_of = [](std::span<const Semaphore> all) {
    std::vector<std::uint64_t> values(all.size());
    std::ranges::transform(all, values.begin(), [](const Semaphore& each) { return each.value.value_or(0); });
    return values;
  };
  const auto wait = handles_of(semaphores.wait);
  const auto signal = handles_of(semaphores.signal);
  const std::vector<VkPipelineStageFlags> all(wait.size(), VK_PIPELINE_STAGE_ALL_COMMANDS_BIT);
  VkSubmitInfo info{};
  info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  info.waitSemaphoreCount = static_cast<std::uint32_t>(wait.size());
  info.pWaitSemaphores = wait.data();
  info.pWaitDstStageMask = all.data();
  info.signalSemaphoreCount = static_cast<std::uint32_t>(signal.size());
  info.pSignalSemaphores = signal.data();
  info.commandBufferCount = commands != nullptr ? 1 : 0;
  info.pCommandBuffers = &commands;
  const auto has_value = [](const Semaphore& semaphore) { return semaphore.value.has_value(); };
  const auto wait_values = values_of(semaphores.wait);
  const auto signal_values = values_of(semaphores.signal);
  VkTimelineSemaphoreSubmitInfo timeline{};
  if (std::ranges::any_of(semaphores.wait, has_value) || std::ranges::any_of(semaphores.signal, has_value)) {
    timeline.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO;
    timeline.waitSemaphoreValueCount = info.waitSemaphoreCount;
    timeline.pWaitSemaphoreValues = wait_values.data();
    timeline.signalSemaphoreValueCount = info.signalSemaphoreCount;
    timeline.pSignalSemaphoreValues = signal_values.data();
    info.pNext = &timeline;
  }
  const base::MutexLock lock(mutex_);
  return check(vk_->QueueSubmit(handle_, 1, &info, fence), doing);
}

void Queue::wait_idle() {
  const base::MutexLock lock(mutex_);
  vk_->QueueWaitIdle(handle_);
}

namespace {

/// One queue for synchronous work, one for streams, and spare ones for streams that come after work has got stuck.
/// Each queue costs the driver time and memory.
constexpr std::uint32_t most_queues = 4;
/// Enough for two lanes of an executor; more streams go to the next queue.
constexpr int streams_of_a_queue = 6;
/// One per direction, so that uploads do not wait for downloads.
constexpr std::uint32_t copy_queues = 2;

/// Whether a family is useful for copies that overlap with computation: it needs one queue per direction, and
/// timestamps.
bool copies_well(const Physical& physical, std::uint32_t family) {
  const Physical::Family& copies = physical.families[family];
  return copies.queues >= copy_queues && copies.timestamp_bits > 0;
}

}  // namespace

Result<std::shared_ptr<Context>> Context::create(std::shared_ptr<const Instance> instance, const Physical& physical,
                                                 Reach reach) {
  const std::string doing = fmt::format("creating a device on {}", physical.properties.deviceName);
  const Features features(*instance, physical);
  Family compute{physical.compute_family.value()};
  compute.queues.resize(std::min(physical.families[compute.number].queues, most_queues));
  Family copy;
  const bool resets_queries = features.queries.hostQueryReset == VK_TRUE;
  if (physical.copy_family && copies_well(physical, *physical.copy_family) && resets_queries)
    copy = {*physical.copy_family, std::vector<VkQueue>(copy_queues)};
  const std::vector<float> priorities(std::max(compute.queues.size(), copy.queues.size()), 1);
  std::vector<VkDeviceQueueCreateInfo> queues;
  for (const Family* family : {&compute, &copy}) {
    if (family->queues.empty()) continue;
    VkDeviceQueueCreateInfo some{};
    some.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
    some.queueFamilyIndex = family->number;
    some.queueCount = static_cast<std::uint32_t>(family->queues.size());
    some.pQueuePriorities = priorities.data();
    queues.push_back(some);
  }
  VkDeviceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
  info.pNext = &features.core;
  info.queueCreateInfoCount = static_cast<std::uint32_t>(queues.size());
  info.pQueueCreateInfos = queues.data();
  VkDevice device = nullptr;
  KILN_TRY(check(instance->vk.CreateDevice(physical.handle, &info, nullptr, &device), doing));
  auto functions = device_functions(instance->vk.GetDeviceProcAddr, device);
  if (!functions) {
    if (const auto destroy =
            reinterpret_cast<PFN_vkDestroyDevice>(instance->vk.GetDeviceProcAddr(device, "vkDestroyDevice")))
      destroy(device, nullptr);
    return std::move(functions).error();
  }
  // An old loader may not know vkResetQueryPool even if the driver has it.
  const Terms terms{.owned = true,
                    .host_resets_queries = resets_queries && functions->ResetQueryPool != nullptr,
                    .reach = reach,
                    .capabilities = features.capabilities(*instance, physical)};
  if (!terms.host_resets_queries) copy = {};
  for (Family* family : {&compute, &copy})
    for (std::uint32_t i = 0; i < family->queues.size(); ++i)
      functions->GetDeviceQueue(device, family->number, i, &family->queues[i]);
  return std::make_shared<Context>(std::move(instance), physical, device, compute, copy, *functions, terms);
}

Result<std::shared_ptr<Context>> Context::adopt(std::shared_ptr<const Instance> instance, const Physical& physical,
                                                VkDevice device, VkQueue queue, std::uint32_t family) {
  auto functions = KILN_TRY(device_functions(instance->vk.GetDeviceProcAddr, device));
  return std::make_shared<Context>(std::move(instance), physical, device, Family{family, {queue}}, Family{},
                                   functions, Terms{});
}

Context::Context(std::shared_ptr<const Instance> instance, const Physical& of, VkDevice handle,
                 const Family& compute, const Family& copy, const DeviceFunctions& functions, const Terms& on)
    : physical(of),
      device(handle),
      families(copy.queues.empty() ? std::vector{compute.number} : std::vector{compute.number, copy.number}),
      vk(functions),
      terms(on),
      instance_(std::move(instance)) {
  const auto add = [this](std::deque<Queue>& to, const Family& family) {
    for (const VkQueue queue : family.queues)
      to.emplace_back(vk, queue, family.number, physical.properties.limits.timestampPeriod,
                      physical.families[family.number].timestamp_bits);
  };
  add(queues_, compute);
  add(copy_queues_, copy);
  base::expect_process_end();
}

Context::~Context() {
  for (const auto& [slots, layout] : layouts_) {
    vk->DestroyPipelineLayout(device, layout.pipeline, nullptr);
    for (const VkDescriptorSetLayout set : layout.sets) vk->DestroyDescriptorSetLayout(device, set, nullptr);
  }
  if (terms.owned) vk->DestroyDevice(device, nullptr);
}

Context::Route Context::share_queues() {
  const base::MutexLock lock(share_mutex_);
  // The first queue is for synchronous work, unless it is the only one.
  const auto first = queues_.begin() + (queues_.size() > 1 ? 1 : 0);
  auto queue = std::find_if(first, queues_.end(),
                            [](const Queue& one) { return one.stuck == 0 && one.streams < streams_of_a_queue; });
  if (queue == queues_.end())
    queue = std::min_element(first, queues_.end(), [](const Queue& a, const Queue& b) {
      return std::pair(a.stuck.load(), a.streams.load()) < std::pair(b.stuck.load(), b.streams.load());
    });
  ++queue->streams;
  Route route{.compute = {&*queue, [](Queue* shared) { --shared->streams; }}};
  // Downloads wait in the copy queue until their compute work has ended. If that work is stuck, downloads of other
  // compute queues would wait too, so only one compute queue uses the copy queues.
  if (queue == first && !copy_queues_.empty()) {
    route.upload = &copy_queues_.front();
    route.download = &copy_queues_.back();
  } else if (terms.reach == Reach::staged) {
    route.upload = route.download = route.compute.get();
  }
  return route;
}

VkDescriptorType descriptor_type(backend::GlslResource::Kind kind) noexcept {
  using Kind = backend::GlslResource::Kind;
  switch (kind) {
    case Kind::uniform_buffer: return VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER;
    case Kind::image: return VK_DESCRIPTOR_TYPE_STORAGE_IMAGE;
    case Kind::texture: return VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER;
    case Kind::sampler: return VK_DESCRIPTOR_TYPE_SAMPLER;
    case Kind::sampled_image: return VK_DESCRIPTOR_TYPE_SAMPLED_IMAGE;
    case Kind::uniform_texel_buffer: return VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER;
    case Kind::storage_texel_buffer: return VK_DESCRIPTOR_TYPE_STORAGE_TEXEL_BUFFER;
    case Kind::storage_buffer:
    case Kind::atomic_counters: break;
  }
  return VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
}

Result<const Context::Layout*> Context::layout(std::span<const backend::GlslResource> resources,
                                               std::uint32_t parameter_bytes, std::string_view doing) {
  std::vector<Slot> slots;
  for (const backend::GlslResource& resource : resources)
    slots.push_back({resource.place.set, resource.place.binding, descriptor_type(resource.kind), resource.count});
  const base::MutexLock lock(layouts_mutex_);
  auto& [key, layout] = *layouts_.try_emplace({std::move(slots), parameter_bytes}).first;
  // A layout that could not be made is retried at the next call.
  if (layout.pipeline == nullptr) KILN_TRY(make_layout(layout, key.first, parameter_bytes, doing));
  return &layout;
}

Result<void> Context::make_layout(Layout& layout, std::span<const Slot> slots, std::uint32_t parameter_bytes,
                                  std::string_view doing) const {
  const std::uint32_t sets = slots.empty() ? 1 : slots.back().set + 1;
  layout.descriptors = {};
  for (const Slot& slot : slots) layout.descriptors[slot.type] += slot.count;
  while (layout.sets.size() < sets) {
    std::vector<VkDescriptorSetLayoutBinding> bindings;
    for (const Slot& slot : slots)
      if (slot.set == layout.sets.size())
        bindings.push_back({slot.binding, slot.type, slot.count, VK_SHADER_STAGE_COMPUTE_BIT, nullptr});
    VkDescriptorSetLayoutCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO;
    info.bindingCount = static_cast<std::uint32_t>(bindings.size());
    info.pBindings = bindings.data();
    VkDescriptorSetLayout set = nullptr;
    KILN_TRY(check(vk->CreateDescriptorSetLayout(device, &info, nullptr, &set), doing));
    layout.sets.push_back(set);
  }
  // Vulkan requires whole words of push constants.
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, (parameter_bytes + 3) / 4 * 4};
  VkPipelineLayoutCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
  info.setLayoutCount = sets;
  info.pSetLayouts = layout.sets.data();
  info.pushConstantRangeCount = range.size > 0 ? 1 : 0;
  info.pPushConstantRanges = &range;
  return check(vk->CreatePipelineLayout(device, &info, nullptr, &layout.pipeline), doing);
}

}  // namespace kiln::vulkan
