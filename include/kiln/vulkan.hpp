#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <kiln/device.hpp>
#include <kiln/stream.hpp>

// The handles as <vulkan/vulkan.h> has them, so that neither header needs the other.
static_assert(sizeof(void*) == 8, "Vulkan's handles are pointers only in 64-bit programs");
using VkInstance = struct VkInstance_T*;
using VkPhysicalDevice = struct VkPhysicalDevice_T*;
using VkDevice = struct VkDevice_T*;
using VkQueue = struct VkQueue_T*;
using VkBuffer = struct VkBuffer_T*;
using VkPipeline = struct VkPipeline_T*;
using VkPipelineLayout = struct VkPipelineLayout_T*;
using VkDescriptorSetLayout = struct VkDescriptorSetLayout_T*;
using VkImageView = struct VkImageView_T*;
using VkSampler = struct VkSampler_T*;
using VkBufferView = struct VkBufferView_T*;
using VkCommandBuffer = struct VkCommandBuffer_T*;
using VkSemaphore = struct VkSemaphore_T*;
using VkFence = struct VkFence_T*;

namespace kiln::vulkan {

/// A compute pipeline with its layout: resources in descriptor sets as the source declares them, parameters as push
/// constants. Made by a device of this API: see Program::as(). All functions may be called from any thread; the
/// handles and the name are valid until the module is destroyed. A program with several entry points has no
/// pipeline, no layouts, no buffers and no parameters of its own: see Program::entry().
class Module : public kiln::Module {
 public:
  /// For vkCmdBindPipeline, on the device that it was made for.
  virtual VkPipeline pipeline() const noexcept = 0;
  /// For vkCmdBindDescriptorSets and vkCmdPushConstants.
  virtual VkPipelineLayout layout() const noexcept = 0;
  /// The layout of a descriptor set; null behind the last one that the program declares. Sets without resources
  /// have an empty layout, and set 0 always has one.
  virtual VkDescriptorSetLayout set_layout(std::uint32_t set = 0) const noexcept = 0;

  /// The name of the program's request.
  virtual const std::string& name() const noexcept = 0;
  /// How many buffers a launch gives if it gives the storage buffers of set 0 in order: one more than the highest
  /// binding. Buffers for bindings that the program does not declare are ignored. Other resources are not counted.
  virtual std::uint32_t buffers() const noexcept = 0;
  /// The size of the push constants in bytes. A launch gives their members one by one, or all as one value.
  virtual std::uint32_t parameter_bytes() const noexcept = 0;
};

/// The VkBuffer of a buffer, for use as storage, uniform or texel buffer and in copies. It belongs to the buffer
/// and is valid until that is destroyed; null for a buffer of another API. For a buffer of wrap(), the caller's.
/// May be called from any thread.
VkBuffer memory(const Buffer& buffer) noexcept;

/// The caller's own buffer as a buffer of `device`: its `bytes` bytes from `offset` on. The caller keeps the buffer
/// and destroys it after the result. It must be of the device that was adopted, have memory, and be created with
/// VK_BUFFER_USAGE_STORAGE_BUFFER_BIT (or UNIFORM_BUFFER_BIT for uniform buffers), and for write(), read() and
/// slots also with TRANSFER_DST_BIT and TRANSFER_SRC_BIT. Launches refuse an offset that is no multiple of
/// minStorageBufferOffsetAlignment (minUniformBufferOffsetAlignment). Kiln orders its own work on the queue; work
/// that the caller submits must be separated from it by a fence or a semaphore.
///
/// Fails with invalid_request for a device of another API, a null handle, or no bytes.
Result<std::unique_ptr<Buffer>> wrap(Device& device, VkBuffer buffer, std::size_t bytes, std::size_t offset = 0);

/// Arguments of the caller's own objects, for bound() and named(). They must be of the device that was adopted, and
/// must stay until the launch has ended. `layout` is the VkImageLayout that the image has when the launch runs:
/// VK_IMAGE_LAYOUT_GENERAL for an image that the program writes. Kiln changes no layouts.
///
/// A storage image, or a sampled image whose sampler is another argument (`texture2D`).
inline Argument image(VkImageView view, std::uint32_t layout) {
  return NativeObject{
      .kind = NativeObject::Kind::vk_image, .handle = reinterpret_cast<std::uint64_t>(view), .numbers = {layout}};
}
/// A combined image and sampler (`sampler2D`).
inline Argument texture(VkImageView view, VkSampler sampler, std::uint32_t layout) {
  return NativeObject{.kind = NativeObject::Kind::vk_texture,
                      .handle = reinterpret_cast<std::uint64_t>(view),
                      .sampler = reinterpret_cast<std::uint64_t>(sampler),
                      .numbers = {layout}};
}
inline Argument sampler(VkSampler sampler) {
  return NativeObject{.kind = NativeObject::Kind::vk_sampler, .handle = reinterpret_cast<std::uint64_t>(sampler)};
}
/// A uniform or storage texel buffer.
inline Argument texel_buffer(VkBufferView view) {
  return NativeObject{.kind = NativeObject::Kind::vk_texel_buffer, .handle = reinterpret_cast<std::uint64_t>(view)};
}

/// Records launches into the caller's own command buffer, of the queue family of adopt(). It must be in the
/// recording state, outside of a render pass, at each launch. Nothing runs before the caller submits it. Each
/// launch begins and ends with a barrier: it sees the writes of all commands recorded before it, and commands
/// recorded after it, and the host once the command buffer has ended, see its writes. The bound pipeline,
/// descriptor sets and push constants are undefined after a launch.
///
/// See kiln::Stream. Keep the result, which owns the descriptor sets and uniform values of the launches, until the
/// command buffer has ended for the last time or was reset. hold() holds things as long. May be called from any
/// thread. Fails with invalid_request for a device of another API, or a null command buffer.
Result<std::unique_ptr<Stream>> stream(Device& device, VkCommandBuffer commands);

/// A semaphore of the caller's own. A value that owns nothing.
struct Semaphore {
  VkSemaphore handle = nullptr;
  /// The value to wait for or to signal, if it is a timeline semaphore.
  std::optional<std::uint64_t> value = {};
};

/// What a submission waits for before it begins, and signals at its end. A value that owns nothing.
struct Submission {
  std::vector<Semaphore> wait = {};
  std::vector<Semaphore> signal = {};
  /// Signalled at the end; null: none.
  VkFence fence = nullptr;
};

/// Launches on the caller's own queue, made by stream(). Launches are recorded, and run once they are submitted.
class QueueStream : public Stream {
 public:
  /// Submits what was recorded since the last call, or only the semaphores and the fence if there is nothing. Does
  /// not wait. Submissions run one after the other. Fails with device_failed and out_of_memory; then call it again
  /// with the same submission, which submits what is left. launch() fails until it has succeeded.
  virtual Result<void> submit(const Submission& submission = {}) = 0;
};

/// Launches on a queue of the caller's own device, of the queue family that adopt() was given. See kiln::Stream.
/// Vulkan allows one thread at a time to use a queue: no other thread may use it during submit() and the
/// destructor, which waits for the submitted work; launches that were not submitted are dropped. Kiln may use the
/// queue of adopt() from other threads at any time, under a lock that only Kiln knows.
///
/// May be called from any thread. Fails with invalid_request for a device that was not adopted, for a null queue
/// and for another family.
Result<std::unique_ptr<QueueStream>> stream(Device& device, VkQueue queue, std::uint32_t queue_family);

/// The handles of the caller's own device, for adopt(). A value that owns nothing.
struct Adopted {
  /// The type of vkGetInstanceProcAddr.
  using VoidFunction = void (*)();
  using GetInstanceProcAddr = VoidFunction (*)(VkInstance, const char*);

  /// Of Vulkan 1.1 or newer.
  VkInstance instance = nullptr;
  VkPhysicalDevice physical = nullptr;
  VkDevice device = nullptr;
  /// A queue that can compute, and its family.
  VkQueue queue = nullptr;
  std::uint32_t queue_family = 0;
  /// vkGetInstanceProcAddr; null: that of libvulkan.so.1.
  GetInstanceProcAddr get_instance_proc_addr = nullptr;
};

/// A device on the caller's own VkDevice, which must outlive it and all its programs, buffers and slots.
///
/// Kiln submits to `queue` from every thread that launches, writes, reads or has a slot, one at a time. Vulkan
/// requires that one thread uses a queue at a time, and Kiln does not know the caller's locks: pass a queue that no
/// other thread uses while Kiln is called. Programs can use only the features that the caller enabled in its
/// device.
///
/// May be called from any thread. Fails with invalid_request if a handle is null or `queue_family` cannot compute,
/// unsupported before Vulkan 1.1, no_device if libvulkan.so.1 is missing, device_failed or
/// out_of_memory.
Result<std::shared_ptr<Device>> adopt(const Adopted& adopted, const Log& log = {});

}  // namespace kiln::vulkan
