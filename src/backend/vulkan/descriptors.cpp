#include "backend/vulkan/descriptors.hpp"

#include <algorithm>

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

}  // namespace kiln::vulkan
