#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <kiln/device.hpp>

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

namespace kiln::vulkan {

/// A compute pipeline with its layout: storage buffers 0, 1, … in set 0, parameters as push constants. Made by a
/// device of this API: see Program::as(). All functions may be called from any thread; the handles and the name are
/// valid until the module is destroyed.
class Module : public kiln::Module {
 public:
  /// For vkCmdBindPipeline, on the device that it was made for. Null if the program has several entry points: see
  /// Program::entry().
  virtual VkPipeline pipeline() const noexcept = 0;
  /// For vkCmdBindDescriptorSets and vkCmdPushConstants.
  virtual VkPipelineLayout layout() const noexcept = 0;
  /// The layout of set 0.
  virtual VkDescriptorSetLayout set_layout() const noexcept = 0;

  /// The name of the program's request.
  virtual const std::string& name() const noexcept = 0;
  /// How many storage buffers a launch must bind.
  virtual std::uint32_t buffers() const noexcept = 0;
  /// How many bytes of parameters a launch must give.
  virtual std::uint32_t parameter_bytes() const noexcept = 0;
};

/// The VkBuffer of a buffer, for use as storage and in copies. It belongs to the buffer and is valid until that is
/// destroyed; null for a buffer of another API. May be called from any thread.
VkBuffer memory(const Buffer& buffer) noexcept;

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
/// unsupported before Vulkan 1.1, no_device if libvulkan.so.1 or shaderc is missing, device_failed or
/// out_of_memory.
Result<std::shared_ptr<Device>> adopt(const Adopted& adopted, const Log& log = {});

}  // namespace kiln::vulkan
