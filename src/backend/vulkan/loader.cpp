#include "backend/vulkan/loader.hpp"

#include <fmt/format.h>

namespace kiln::vulkan {
namespace {

/// `get` is vkGetInstanceProcAddr or vkGetDeviceProcAddr.
template <class Get, class Handle>
backend::SymbolLookup lookup_by(Get get, Handle handle) {
  return backend::SymbolLookup([=](const char* name) { return reinterpret_cast<void*>(get(handle, name)); });
}

Error lacks(const char* name) {
  return Error(ErrorCode::unsupported, fmt::format("the Vulkan driver lacks {}; Kiln needs Vulkan 1.1", name));
}

DeviceFunctions stubs() {
  DeviceFunctions vk;
  const backend::StubLookup<VK_ERROR_DEVICE_LOST> lookup;
  vk.fill(lookup);
  lookup(vk.ResetQueryPool, "vkResetQueryPool");
  return vk;
}

}  // namespace

Result<Loader> open_loader() {
  auto library = base::DynamicLibrary::open("libvulkan.so.1");
  if (!library)
    return Error(ErrorCode::no_device,
                 library.error().message() +
                     "; install libvulkan1 and the GPU's driver, or mesa-vulkan-drivers for the CPU");
  Loader loader{.library = std::move(*library)};
  loader.get_instance_proc_addr =
      loader.library.function<std::remove_pointer_t<PFN_vkGetInstanceProcAddr>>("vkGetInstanceProcAddr");
  if (loader.get_instance_proc_addr == nullptr)
    return Error(ErrorCode::no_device, "libvulkan.so.1 has no vkGetInstanceProcAddr: it is not a Vulkan loader");
  return loader;
}

Result<InstanceFunctions> instance_functions(PFN_vkGetInstanceProcAddr get, VkInstance instance) {
  InstanceFunctions vk;
  auto lookup = lookup_by(get, instance);
  vk.fill(lookup);
  if (lookup.missing() != nullptr) return lacks(lookup.missing());
  return vk;
}

Result<DeviceFunctions> device_functions(PFN_vkGetDeviceProcAddr get, VkDevice device) {
  DeviceFunctions vk;
  auto lookup = lookup_by(get, device);
  vk.fill(lookup);
  if (lookup.missing() != nullptr) return lacks(lookup.missing());
  lookup.optional(vk.ResetQueryPool, "vkResetQueryPool");
  return vk;
}

DeviceCalls::DeviceCalls(const DeviceFunctions& functions) : Calls(functions, stubs()) {}

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

Error vulkan_error(VkResult result, std::string_view doing) {
  switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_OUT_OF_POOL_MEMORY:
    case VK_ERROR_FRAGMENTED_POOL:
    case VK_ERROR_TOO_MANY_OBJECTS:
      return Error(ErrorCode::out_of_memory, fmt::format("the device ran out of memory while {}", doing));
    case VK_ERROR_DEVICE_LOST:
      return Error(ErrorCode::device_failed, fmt::format("the device was lost while {}; open it again", doing));
    default: return Error(ErrorCode::device_failed, fmt::format("{} while {}", result_name(result), doing));
  }
}

}  // namespace kiln::vulkan
