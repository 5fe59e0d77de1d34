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

/// A compute pipeline with its layout: storage buffers 0, 1, … in set 0, parameters as push constants. The handles
/// are valid until the module is destroyed.
class Module : public kiln::Module {
 public:
  /// For vkCmdBindPipeline, on the device it was made for.
  virtual VkPipeline pipeline() const noexcept = 0;
  virtual VkPipelineLayout layout() const noexcept = 0;
  /// The layout of set 0.
  virtual VkDescriptorSetLayout set_layout() const noexcept = 0;

  /// The name of the program's request.
  virtual const std::string& name() const noexcept = 0;
  /// How many storage buffers a launch binds.
  virtual std::uint32_t buffers() const noexcept = 0;
  /// How many bytes of parameters a launch gives.
  virtual std::uint32_t parameter_bytes() const noexcept = 0;
};

/// The VkBuffer of a buffer, the buffer's until it is destroyed: for storage, and to copy from and to. Null for a
/// buffer of another API.
VkBuffer memory(const Buffer& buffer) noexcept;

/// A device of the caller's own, made without Kiln.
struct Adopted {
  using VoidFunction = void (*)();
  using GetInstanceProcAddr = VoidFunction (*)(VkInstance, const char*);

  /// Of Vulkan 1.1 or newer.
  VkInstance instance = nullptr;
  VkPhysicalDevice physical = nullptr;
  VkDevice device = nullptr;
  /// A queue that can compute, and the family it is of.
  VkQueue queue = nullptr;
  std::uint32_t queue_family = 0;
  /// vkGetInstanceProcAddr; where it is null, that of libvulkan.so.1.
  GetInstanceProcAddr get_instance_proc_addr = nullptr;
};

/// A device on the caller's own VkDevice, which outlives it and all its programs and buffers.
///
/// Kiln submits to `queue` from whichever thread launches, writes, reads or has a slot, one at a time. Vulkan wants
/// a queue used by one thread at a time, and Kiln cannot see the caller's locks: the caller gives a queue that it
/// does not use itself while it calls Kiln, on any thread. Programs can use only what the caller enabled in its
/// device.
Result<std::shared_ptr<Device>> adopt(const Adopted& adopted, const Log& log = {});

}  // namespace kiln::vulkan
