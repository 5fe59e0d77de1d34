#pragma once

#include <string>
#include <string_view>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include <kiln/result.hpp>

#include "backend/symbols.hpp"
#include "base/dynamic_library.hpp"

/// Vulkan's functions, found at run time and named as in its manual, without the vk before them.
namespace kiln::vulkan {

/// The loader, or what stands for it in a program that brings its own.
struct Loader {
  base::DynamicLibrary library = {};
  PFN_vkGetInstanceProcAddr get_instance_proc_addr = nullptr;
};

/// libvulkan.so.1; the error says what provides it.
Result<Loader> open_loader();

// clang-format off
#define KILN_VULKAN_INSTANCE_FUNCTIONS(X) \
  X(DestroyInstance) \
  X(EnumeratePhysicalDevices) \
  X(GetPhysicalDeviceProperties) \
  X(GetPhysicalDeviceProperties2) \
  X(GetPhysicalDeviceFeatures2) \
  X(GetPhysicalDeviceMemoryProperties) \
  X(GetPhysicalDeviceQueueFamilyProperties) \
  X(EnumerateDeviceExtensionProperties) \
  X(CreateDevice) \
  X(GetDeviceProcAddr)
// clang-format on

struct InstanceFunctions {
#define KILN_DECLARE(name) PFN_vk##name name = nullptr;
  KILN_VULKAN_INSTANCE_FUNCTIONS(KILN_DECLARE)
#undef KILN_DECLARE

  template <class Lookup>
  void fill(Lookup& lookup) {
#define KILN_FILL(name) lookup(name, "vk" #name);
    KILN_VULKAN_INSTANCE_FUNCTIONS(KILN_FILL)
#undef KILN_FILL
  }
};

// clang-format off
#define KILN_VULKAN_DEVICE_FUNCTIONS(X) \
  X(DestroyDevice) \
  X(GetDeviceQueue) \
  X(QueueSubmit) \
  X(QueueWaitIdle) \
  X(AllocateMemory) \
  X(FreeMemory) \
  X(MapMemory) \
  X(CreateBuffer) \
  X(DestroyBuffer) \
  X(GetBufferMemoryRequirements) \
  X(BindBufferMemory) \
  X(CreateShaderModule) \
  X(DestroyShaderModule) \
  X(CreatePipelineCache) \
  X(DestroyPipelineCache) \
  X(GetPipelineCacheData) \
  X(CreateComputePipelines) \
  X(DestroyPipeline) \
  X(CreatePipelineLayout) \
  X(DestroyPipelineLayout) \
  X(CreateDescriptorSetLayout) \
  X(DestroyDescriptorSetLayout) \
  X(CreateDescriptorPool) \
  X(DestroyDescriptorPool) \
  X(ResetDescriptorPool) \
  X(AllocateDescriptorSets) \
  X(UpdateDescriptorSets) \
  X(CreateCommandPool) \
  X(DestroyCommandPool) \
  X(ResetCommandPool) \
  X(AllocateCommandBuffers) \
  X(BeginCommandBuffer) \
  X(EndCommandBuffer) \
  X(CmdPipelineBarrier) \
  X(CmdBindPipeline) \
  X(CmdBindDescriptorSets) \
  X(CmdPushConstants) \
  X(CmdDispatch) \
  X(CmdCopyBuffer) \
  X(CreateFence) \
  X(DestroyFence) \
  X(ResetFences) \
  X(WaitForFences) \
  X(GetFenceStatus) \
  X(CreateSemaphore) \
  X(DestroySemaphore) \
  X(CreateQueryPool) \
  X(DestroyQueryPool) \
  X(GetQueryPoolResults) \
  X(CmdResetQueryPool) \
  X(CmdWriteTimestamp)
// clang-format on

struct DeviceFunctions {
#define KILN_DECLARE(name) PFN_vk##name name = nullptr;
  KILN_VULKAN_DEVICE_FUNCTIONS(KILN_DECLARE)
#undef KILN_DECLARE
  /// From Vulkan 1.2 on; null before.
  PFN_vkResetQueryPool ResetQueryPool = nullptr;

  template <class Lookup>
  void fill(Lookup& lookup) {
#define KILN_FILL(name) lookup(name, "vk" #name);
    KILN_VULKAN_DEVICE_FUNCTIONS(KILN_FILL)
#undef KILN_FILL
  }
};

/// All functions of an instance; the error names the first that is missing.
Result<InstanceFunctions> instance_functions(PFN_vkGetInstanceProcAddr get, VkInstance instance);
/// All functions of a device; the error names the first that is missing.
Result<DeviceFunctions> device_functions(PFN_vkGetDeviceProcAddr get, VkDevice device);

/// The functions of a device as long as the process has one.
class DeviceCalls : public backend::Calls<DeviceFunctions> {
 public:
  explicit DeviceCalls(const DeviceFunctions& functions);
};

/// The error that a call's result stands for; `doing` says what failed, as in "launching gemm".
Error vulkan_error(VkResult result, std::string_view doing);

/// Nothing where the call succeeded, its error where it did not.
inline Result<void> check(VkResult result, std::string_view doing) {
  if (result >= 0) return {};
  return vulkan_error(result, doing);
}

}  // namespace kiln::vulkan
