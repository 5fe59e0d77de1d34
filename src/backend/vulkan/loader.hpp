#pragma once

#include <string>
#include <string_view>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include <kiln/result.hpp>

#include "backend/symbols.hpp"
#include "base/dynamic_library.hpp"

/// Vulkan's functions, loaded at run time. Their names omit the prefix vk.
namespace kiln::vulkan {

/// The Vulkan loader. The library is empty if the application provides vkGetInstanceProcAddr.
struct Loader {
  base::DynamicLibrary library = {};
  PFN_vkGetInstanceProcAddr get_instance_proc_addr = nullptr;
};

/// Opens libvulkan.so.1. The error says what provides it.
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
  X(CmdUpdateBuffer) \
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
  /// Since Vulkan 1.2; null if it is missing.
  PFN_vkResetQueryPool ResetQueryPool = nullptr;

  template <class Lookup>
  void fill(Lookup& lookup) {
#define KILN_FILL(name) lookup(name, "vk" #name);
    KILN_VULKAN_DEVICE_FUNCTIONS(KILN_FILL)
#undef KILN_FILL
  }
};

/// Finds all functions of an instance. The error names the first missing one.
Result<InstanceFunctions> instance_functions(PFN_vkGetInstanceProcAddr get, VkInstance instance);
/// Finds all functions of a device. The error names the first missing one.
Result<DeviceFunctions> device_functions(PFN_vkGetDeviceProcAddr get, VkDevice device);

/// The functions of a device. Once exit() begins, calls go to stubs that return VK_ERROR_DEVICE_LOST.
class DeviceCalls : public backend::Calls<DeviceFunctions> {
 public:
  explicit DeviceCalls(const DeviceFunctions& functions);
};

/// The name of an error code, as in "VK_ERROR_UNKNOWN".
std::string result_name(VkResult result);

/// Converts the result of a call that failed. `doing` names the operation, as in "launching gemm".
Error vulkan_error(VkResult result, std::string_view doing);

/// Fails with vulkan_error() if `result` is an error code.
inline Result<void> check(VkResult result, std::string_view doing) {
  if (result >= 0) return {};
  return vulkan_error(result, doing);
}

}  // namespace kiln::vulkan
