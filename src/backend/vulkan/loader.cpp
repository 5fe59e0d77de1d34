#include "backend/vulkan/loader.hpp"

#include <fmt/format.h>

namespace kiln::vulkan {
namespace {

/// Finds functions one after the other, and remembers the first that is not there.
template <class Get, class Handle>
class Finder {
 public:
  Finder(Get get, Handle handle) : get_(get), handle_(handle) {}

  template <class Function>
  void operator()(Function& function, const char* name) {
    function = reinterpret_cast<Function>(get_(handle_, name));
    if (function == nullptr && missing_ == nullptr) missing_ = name;
  }
  const char* missing() const noexcept { return missing_; }

 private:
  Get get_;
  Handle handle_;
  const char* missing_ = nullptr;
};

Error lacks(const char* name) {
  return Error(ErrorCode::unsupported, fmt::format("the Vulkan driver lacks {}; Kiln needs Vulkan 1.1", name));
}

std::string result_name(VkResult result) {
  switch (result) {
    case VK_ERROR_INITIALIZATION_FAILED: return "VK_ERROR_INITIALIZATION_FAILED";
    case VK_ERROR_LAYER_NOT_PRESENT: return "VK_ERROR_LAYER_NOT_PRESENT";
    case VK_ERROR_EXTENSION_NOT_PRESENT: return "VK_ERROR_EXTENSION_NOT_PRESENT";
    case VK_ERROR_FEATURE_NOT_PRESENT: return "VK_ERROR_FEATURE_NOT_PRESENT";
    case VK_ERROR_INCOMPATIBLE_DRIVER: return "VK_ERROR_INCOMPATIBLE_DRIVER";
    case VK_ERROR_MEMORY_MAP_FAILED: return "VK_ERROR_MEMORY_MAP_FAILED";
    case VK_ERROR_FRAGMENTATION: return "VK_ERROR_FRAGMENTATION";
    case VK_ERROR_INVALID_SHADER_NV: return "VK_ERROR_INVALID_SHADER_NV";
    case VK_ERROR_UNKNOWN: return "VK_ERROR_UNKNOWN";
    default: return fmt::format("Vulkan error {}", static_cast<int>(result));
  }
}

template <class Find>
void find_each(DeviceFunctions& vk, Find& find) {
  find(vk.DestroyDevice, "vkDestroyDevice");
  find(vk.GetDeviceQueue, "vkGetDeviceQueue");
  find(vk.QueueSubmit, "vkQueueSubmit");
  find(vk.QueueWaitIdle, "vkQueueWaitIdle");
  find(vk.AllocateMemory, "vkAllocateMemory");
  find(vk.FreeMemory, "vkFreeMemory");
  find(vk.MapMemory, "vkMapMemory");
  find(vk.CreateBuffer, "vkCreateBuffer");
  find(vk.DestroyBuffer, "vkDestroyBuffer");
  find(vk.GetBufferMemoryRequirements, "vkGetBufferMemoryRequirements");
  find(vk.BindBufferMemory, "vkBindBufferMemory");
  find(vk.CreateShaderModule, "vkCreateShaderModule");
  find(vk.DestroyShaderModule, "vkDestroyShaderModule");
  find(vk.CreatePipelineCache, "vkCreatePipelineCache");
  find(vk.DestroyPipelineCache, "vkDestroyPipelineCache");
  find(vk.GetPipelineCacheData, "vkGetPipelineCacheData");
  find(vk.CreateComputePipelines, "vkCreateComputePipelines");
  find(vk.DestroyPipeline, "vkDestroyPipeline");
  find(vk.CreatePipelineLayout, "vkCreatePipelineLayout");
  find(vk.DestroyPipelineLayout, "vkDestroyPipelineLayout");
  find(vk.CreateDescriptorSetLayout, "vkCreateDescriptorSetLayout");
  find(vk.DestroyDescriptorSetLayout, "vkDestroyDescriptorSetLayout");
  find(vk.CreateDescriptorPool, "vkCreateDescriptorPool");
  find(vk.DestroyDescriptorPool, "vkDestroyDescriptorPool");
  find(vk.ResetDescriptorPool, "vkResetDescriptorPool");
  find(vk.AllocateDescriptorSets, "vkAllocateDescriptorSets");
  find(vk.UpdateDescriptorSets, "vkUpdateDescriptorSets");
  find(vk.CreateCommandPool, "vkCreateCommandPool");
  find(vk.DestroyCommandPool, "vkDestroyCommandPool");
  find(vk.ResetCommandPool, "vkResetCommandPool");
  find(vk.AllocateCommandBuffers, "vkAllocateCommandBuffers");
  find(vk.BeginCommandBuffer, "vkBeginCommandBuffer");
  find(vk.EndCommandBuffer, "vkEndCommandBuffer");
  find(vk.CmdPipelineBarrier, "vkCmdPipelineBarrier");
  find(vk.CmdBindPipeline, "vkCmdBindPipeline");
  find(vk.CmdBindDescriptorSets, "vkCmdBindDescriptorSets");
  find(vk.CmdPushConstants, "vkCmdPushConstants");
  find(vk.CmdDispatch, "vkCmdDispatch");
  find(vk.CmdCopyBuffer, "vkCmdCopyBuffer");
  find(vk.CreateFence, "vkCreateFence");
  find(vk.DestroyFence, "vkDestroyFence");
  find(vk.ResetFences, "vkResetFences");
  find(vk.WaitForFences, "vkWaitForFences");
  find(vk.GetFenceStatus, "vkGetFenceStatus");
  find(vk.CreateSemaphore, "vkCreateSemaphore");
  find(vk.DestroySemaphore, "vkDestroySemaphore");
  find(vk.CreateQueryPool, "vkCreateQueryPool");
  find(vk.DestroyQueryPool, "vkDestroyQueryPool");
  find(vk.GetQueryPoolResults, "vkGetQueryPoolResults");
  find(vk.CmdResetQueryPool, "vkCmdResetQueryPool");
  find(vk.CmdWriteTimestamp, "vkCmdWriteTimestamp");
}

DeviceFunctions ended_functions() {
  DeviceFunctions vk;
  const backend::FillEnded<VK_ERROR_DEVICE_LOST> fill;
  find_each(vk, fill);
  fill(vk.ResetQueryPool, "vkResetQueryPool");
  return vk;
}

}  // namespace

Result<Loader> open_loader() {
  auto library = base::DynamicLibrary::open("libvulkan.so.1");
  if (!library)
    return Error(ErrorCode::no_device,
                 library.error().message() +
                     "; install the GPU's driver and libvulkan1, and mesa-vulkan-drivers for the CPU");
  Loader loader{.library = std::move(*library)};
  loader.get_instance_proc_addr =
      loader.library.function<std::remove_pointer_t<PFN_vkGetInstanceProcAddr>>("vkGetInstanceProcAddr");
  if (loader.get_instance_proc_addr == nullptr)
    return Error(ErrorCode::no_device, "libvulkan.so.1 has no vkGetInstanceProcAddr: it is no Vulkan loader");
  return loader;
}

Result<InstanceFunctions> instance_functions(PFN_vkGetInstanceProcAddr get, VkInstance instance) {
  InstanceFunctions vk;
  Finder find(get, instance);
  find(vk.DestroyInstance, "vkDestroyInstance");
  find(vk.EnumeratePhysicalDevices, "vkEnumeratePhysicalDevices");
  find(vk.GetPhysicalDeviceProperties, "vkGetPhysicalDeviceProperties");
  find(vk.GetPhysicalDeviceProperties2, "vkGetPhysicalDeviceProperties2");
  find(vk.GetPhysicalDeviceFeatures2, "vkGetPhysicalDeviceFeatures2");
  find(vk.GetPhysicalDeviceMemoryProperties, "vkGetPhysicalDeviceMemoryProperties");
  find(vk.GetPhysicalDeviceQueueFamilyProperties, "vkGetPhysicalDeviceQueueFamilyProperties");
  find(vk.EnumerateDeviceExtensionProperties, "vkEnumerateDeviceExtensionProperties");
  find(vk.CreateDevice, "vkCreateDevice");
  find(vk.GetDeviceProcAddr, "vkGetDeviceProcAddr");
  if (find.missing() != nullptr) return lacks(find.missing());
  return vk;
}

Result<DeviceFunctions> device_functions(PFN_vkGetDeviceProcAddr get, VkDevice device) {
  DeviceFunctions vk;
  Finder find(get, device);
  find_each(vk, find);
  if (find.missing() != nullptr) return lacks(find.missing());
  vk.ResetQueryPool = reinterpret_cast<PFN_vkResetQueryPool>(get(device, "vkResetQueryPool"));
  return vk;
}

DeviceCalls::DeviceCalls(const DeviceFunctions& functions) : Calls(functions, ended_functions()) {}

Error vulkan_error(VkResult result, std::string_view doing) {
  switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_OUT_OF_POOL_MEMORY:
    case VK_ERROR_FRAGMENTED_POOL:
    case VK_ERROR_TOO_MANY_OBJECTS:
      return Error(ErrorCode::out_of_memory, fmt::format("the device ran out of memory {}", doing));
    case VK_ERROR_DEVICE_LOST:
      return Error(ErrorCode::device_failed, fmt::format("the device was lost {}; open it anew", doing));
    default: return Error(ErrorCode::device_failed, fmt::format("{} {}", result_name(result), doing));
  }
}

}  // namespace kiln::vulkan
