#include "backend/vulkan/commands.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "base/try.hpp"

namespace kiln::vulkan {
namespace {

constexpr std::uint32_t sets_of_a_pool = 16;
constexpr std::uint32_t buffers_of_a_pool = 4 * sets_of_a_pool;
constexpr std::size_t bytes_of_uniforms = std::size_t{256} << 10;

/// Uniform blocks end at a multiple of a vec4.
std::size_t padded(std::size_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

Descriptors::~Descriptors() {
  for (const Pool& pool : pools_) context_.vk->DestroyDescriptorPool(context_.device, pool.handle, nullptr);
}

Result<void> Descriptors::reset(std::string_view doing) {
  for (Pool& pool : pools_) {
    if (pool.sets_left == pool.sets) continue;
    KILN_TRY(check(context_.vk->ResetDescriptorPool(context_.device, pool.handle, 0), doing));
    pool.sets_left = pool.sets;
    pool.descriptors_left = pool.descriptors;
  }
  return {};
}

Result<Descriptors::Pool*> Descriptors::with_room(std::uint32_t sets, const Counts& descriptors,
                                                  std::string_view doing) {
  const auto found = std::ranges::find_if(pools_, [&](const Pool& pool) {
    return pool.sets_left >= sets && std::ranges::equal(pool.descriptors_left, descriptors, std::greater_equal{});
  });
  if (found != pools_.end()) return &*found;
  Pool pool{.sets = std::max(sets_of_a_pool, 2 * sets)};
  std::vector<VkDescriptorPoolSize> sizes;
  for (std::size_t type = 0; type < descriptor_types; ++type) {
    pool.descriptors[type] = 2 * descriptors[type];
    if (type == VK_DESCRIPTOR_TYPE_STORAGE_BUFFER)
      pool.descriptors[type] = std::max(pool.descriptors[type], buffers_of_a_pool);
    if (pool.descriptors[type] > 0) sizes.push_back({static_cast<VkDescriptorType>(type), pool.descriptors[type]});
  }
  pool.sets_left = pool.sets;
  pool.descriptors_left = pool.descriptors;
  VkDescriptorPoolCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO;
  info.maxSets = pool.sets;
  info.poolSizeCount = static_cast<std::uint32_t>(sizes.size());
  info.pPoolSizes = sizes.data();
  KILN_TRY(check(context_.vk->CreateDescriptorPool(context_.device, &info, nullptr, &pool.handle), doing));
  pools_.push_back(pool);
  return &pools_.back();
}

Result<std::vector<VkDescriptorSet>> Descriptors::allocate(const Context::Layout& layout, std::string_view doing) {
  const auto count = static_cast<std::uint32_t>(layout.sets.size());
  const auto pool = KILN_TRY(with_room(count, layout.descriptors, doing));
  VkDescriptorSetAllocateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO;
  info.descriptorPool = pool->handle;
  info.descriptorSetCount = count;
  info.pSetLayouts = layout.sets.data();
  std::vector<VkDescriptorSet> sets(count);
  KILN_TRY(check(context_.vk->AllocateDescriptorSets(context_.device, &info, sets.data()), doing));
  pool->sets_left -= count;
  for (std::size_t type = 0; type < descriptor_types; ++type)
    pool->descriptors_left[type] -= layout.descriptors[type];
  return sets;
}

Result<Uniforms::Place> Uniforms::allocate(std::size_t bytes) {
  const std::size_t alignment =
      std::max<std::size_t>(16, context_->physical.properties.limits.minUniformBufferOffsetAlignment);
  if (used_ + bytes > bytes_of_uniforms) {
    ++block_;
    used_ = 0;
  }
  if (block_ == blocks_.size())
    blocks_.push_back(KILN_TRY(DeviceBuffer::allocate(context_, bytes_of_uniforms, DeviceBuffer::Use::storage)));
  const Place place{blocks_[block_].get(), used_};
  used_ = (used_ + bytes + alignment - 1) / alignment * alignment;
  return place;
}

void Recorder::barrier(VkPipelineStageFlags after, VkAccessFlags seen) {
  VkMemoryBarrier memory{};
  memory.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  memory.srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT;
  memory.dstAccessMask = seen;
  context_->vk->CmdPipelineBarrier(command_, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, after, 0, 1, &memory, 0, nullptr,
                                   0, nullptr);
}

Result<void> Recorder::reset(std::string_view doing) {
  uniforms_.reset();
  return descriptors_.reset(doing);
}

void Recorder::copy(const DeviceBuffer& from, std::size_t from_offset, const DeviceBuffer& to,
                    std::size_t to_offset, std::size_t bytes) {
  const VkBufferCopy copy{from.base() + from_offset, to.base() + to_offset, bytes};
  context_->vk->CmdCopyBuffer(command_, from.handle(), to.handle(), 1, &copy);
  barrier();
}

Result<std::vector<Uniforms::Place>> Recorder::update_uniforms(const Fitting& fitted, std::string_view doing) {
  std::vector<Uniforms::Place> places;
  for (const auto& bound : fitted.arguments.bound) {
    const auto* value = bound.argument->as<Argument::Value>();
    if (value == nullptr) continue;
    std::vector<std::byte> bytes(value->bytes().begin(), value->bytes().end());
    bytes.resize(padded(bytes.size()));
    auto place = uniforms_.allocate(bytes.size());
    if (!place) return Error(place.error().code(), fmt::format("{}: {}", doing, place.error().message()));
    context_->vk->CmdUpdateBuffer(command_, place->buffer->handle(), place->offset, bytes.size(), bytes.data());
    places.push_back(*place);
  }
  if (!places.empty()) barrier();
  return places;
}

Result<void> Recorder::bind_resources(const Fitting& fitted, std::string_view doing) {
  const auto& all = fitted.arguments.bound;
  const VkPhysicalDeviceLimits& limits = context_->physical.properties.limits;
  const auto places = KILN_TRY(update_uniforms(fitted, doing));
  const auto sets = KILN_TRY(descriptors_.allocate(fitted.layout, doing));
  auto place = places.begin();
  // The writes point into these.
  std::vector<VkDescriptorBufferInfo> buffers(all.size());
  std::vector<VkDescriptorImageInfo> images(all.size());
  std::vector<VkBufferView> views(all.size());
  std::vector<VkWriteDescriptorSet> writes(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const backend::GlslResource& resource = *all[i].resource;
    VkWriteDescriptorSet& write = writes[i];
    write.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
    write.dstSet = sets[resource.place.set];
    write.dstBinding = resource.place.binding;
    write.dstArrayElement = all[i].element;
    write.descriptorCount = 1;
    write.descriptorType = descriptor_type(resource.kind);
    if (const auto* range = all[i].argument->as<Argument::Range>()) {
      const DeviceBuffer& buffer = *fitted.buffers[i];
      const std::size_t most = resource.kind == backend::GlslResource::Kind::uniform_buffer
                                   ? limits.maxUniformBufferRange
                                   : limits.maxStorageBufferRange;
      buffers[i] = {buffer.handle(), buffer.base() + range->offset,
                    std::min(buffer.accessible_bytes() - range->offset, most)};
      write.pBufferInfo = &buffers[i];
    } else if (const auto* value = all[i].argument->as<Argument::Value>()) {
      buffers[i] = {place->buffer->handle(), place->offset, padded(value->bytes().size())};
      write.pBufferInfo = &buffers[i];
      ++place;
    } else if (const auto& object = *all[i].argument->as<NativeObject>();
               object.kind == NativeObject::Kind::vk_texel_buffer) {
      views[i] = reinterpret_cast<VkBufferView>(object.handle);
      write.pTexelBufferView = &views[i];
    } else {
      const bool is_sampler = object.kind == NativeObject::Kind::vk_sampler;
      images[i] = {.sampler = reinterpret_cast<VkSampler>(is_sampler ? object.handle : object.sampler),
                   .imageView = reinterpret_cast<VkImageView>(is_sampler ? 0 : object.handle),
                   .imageLayout = static_cast<VkImageLayout>(object.numbers[0])};
      write.pImageInfo = &images[i];
    }
  }
  context_->vk->UpdateDescriptorSets(context_->device, static_cast<std::uint32_t>(writes.size()), writes.data(), 0,
                                     nullptr);
  context_->vk->CmdBindDescriptorSets(command_, VK_PIPELINE_BIND_POINT_COMPUTE, fitted.layout.pipeline, 0,
                                      static_cast<std::uint32_t>(sets.size()), sets.data(), 0, nullptr);
  return {};
}

Result<void> Recorder::launch(const Fitting& fitted, std::string_view doing) {
  const Module& module = fitted.program;
  const DeviceCalls& vk = context_->vk;
  vk->CmdBindPipeline(command_, VK_PIPELINE_BIND_POINT_COMPUTE, module.pipeline());
  if (!fitted.arguments.bound.empty()) KILN_TRY(bind_resources(fitted, doing));
  if (const auto given = fitted.arguments.parameters(); !given.empty()) {
    std::vector<std::byte> parameters(given.begin(), given.end());
    // Vulkan requires whole words of push constants.
    parameters.resize((parameters.size() + 3) / 4 * 4);
    vk->CmdPushConstants(command_, module.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                         static_cast<std::uint32_t>(parameters.size()), parameters.data());
  }
  vk->CmdDispatch(command_, fitted.groups[0], fitted.groups[1], fitted.groups[2]);
  barrier();
  return {};
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

Result<VkCommandBuffer> Commands::open(std::string_view doing) {
  if (busy_) KILN_TRY(wait(doing));
  ended_ = false;
  if (!open_) {
    const DeviceCalls& vk = context_->vk;
    KILN_TRY(recorder_.reset(doing));
    KILN_TRY(check(vk->ResetCommandPool(context_->device, pool_, 0), doing));
    VkCommandBufferBeginInfo begin{};
    begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
    begin.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
    KILN_TRY(check(vk->BeginCommandBuffer(command_, &begin), doing));
    open_ = true;
    recorder_.record_into(command_);
    // Earlier submissions of other Commands have ended, but their writes may not be visible yet.
    recorder_.barrier();
  }
  return command_;
}

Result<void> Commands::copy(const DeviceBuffer& from, std::size_t from_offset, const DeviceBuffer& to,
                            std::size_t to_offset, std::size_t bytes, std::string_view doing) {
  KILN_TRY(open(doing));
  recorder_.copy(from, from_offset, to, to_offset, bytes);
  return {};
}

Result<void> Commands::launch(const Fitting& fitted, std::string_view doing) {
  KILN_TRY(open(doing));
  return recorder_.launch(fitted, doing);
}

Result<void> Commands::submit(std::string_view doing, const Semaphores& semaphores) {
  if (open_) {
    recorder_.barrier(VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT);
    open_ = false;
    KILN_TRY(check(context_->vk->EndCommandBuffer(command_), doing));
    ended_ = true;
  }
  if (!ended_) return {};
  KILN_TRY(queue_.submit(command_, semaphores, fence_, doing));
  ended_ = false;
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
