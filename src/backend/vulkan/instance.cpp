#include "backend/vulkan/instance.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "backend/device_info.hpp"
#include "backend/vulkan/module.hpp"
#include "base/process.hpp"
#include "base/try.hpp"

namespace kiln::vulkan {
namespace {

std::string version_text(std::uint32_t version) {
  return fmt::format("{}.{}.{}", VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version),
                     VK_API_VERSION_PATCH(version));
}

std::string vendor_name(std::uint32_t id) {
  const std::string known = backend::vendor_by_id(id);
  return known.empty() ? fmt::format("vendor {:#x}", id) : known;
}

/// The extensions of a device; empty if the driver fails to list them.
std::vector<std::string> extensions_of(const InstanceFunctions& vk, VkPhysicalDevice device) {
  std::uint32_t count = 0;
  if (vk.EnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr) != VK_SUCCESS) return {};
  std::vector<VkExtensionProperties> extensions(count);
  if (vk.EnumerateDeviceExtensionProperties(device, nullptr, &count, extensions.data()) < 0) return {};
  extensions.resize(count);
  std::vector<std::string> names;
  for (const VkExtensionProperties& extension : extensions) names.emplace_back(extension.extensionName);
  return names;
}

/// Whether programs can compute with f16 and keep it in buffers. Requires Vulkan 1.2, because Kiln enables no
/// extensions.
bool has_fp16(const InstanceFunctions& vk, VkPhysicalDevice device) {
  VkPhysicalDeviceShaderFloat16Int8Features arithmetic{};
  arithmetic.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES;
  VkPhysicalDevice16BitStorageFeatures storage{};
  storage.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES;
  storage.pNext = &arithmetic;
  VkPhysicalDeviceFeatures2 features{};
  features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  features.pNext = &storage;
  vk.GetPhysicalDeviceFeatures2(device, &features);
  return arithmetic.shaderFloat16 == VK_TRUE && storage.storageBuffer16BitAccess == VK_TRUE;
}

/// Requires a device of Vulkan 1.1.
DeviceTraits read_traits(const InstanceFunctions& vk, VkPhysicalDevice device) {
  const auto extensions = extensions_of(vk, device);
  const auto has = [&](std::string_view name) { return std::ranges::find(extensions, name) != extensions.end(); };
  VkPhysicalDeviceSubgroupProperties subgroups{};
  subgroups.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES;
  VkPhysicalDeviceProperties2 properties{};
  properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
  properties.pNext = &subgroups;
  VkPhysicalDeviceShaderSMBuiltinsPropertiesNV nvidia{};
  nvidia.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV;
  VkPhysicalDeviceShaderCoreProperties2AMD amd{};
  amd.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_2_AMD;
  if (has("VK_NV_shader_sm_builtins"))
    subgroups.pNext = &nvidia;
  else if (has("VK_AMD_shader_core_properties2"))
    subgroups.pNext = &amd;
  vk.GetPhysicalDeviceProperties2(device, &properties);
  const VkPhysicalDeviceProperties& core = properties.properties;
  const bool software = core.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
  return {.vendor = vendor_name(core.vendorID),
          .subgroup_width = subgroups.subgroupSize,
          .compute_units = nvidia.shaderSMCount + amd.activeComputeUnitCount,
          .fp16 = core.apiVersion >= VK_API_VERSION_1_2 && has_fp16(vk, device),
          // A CPU driver may offer the extension without matrix units.
          .matrix_units = !software && (has("VK_KHR_cooperative_matrix") || has("VK_NV_cooperative_matrix"))};
}

std::string hex(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

Error no_driver() {
  return Error(ErrorCode::no_device,
               "Vulkan found no driver; install the GPU's driver, or mesa-vulkan-drivers for the CPU");
}

}  // namespace

std::string Physical::problem() const {
  if (properties.apiVersion < VK_API_VERSION_1_1)
    return fmt::format("{} offers Vulkan {}; Kiln needs 1.1", properties.deviceName,
                       version_text(properties.apiVersion));
  if (!compute_family) return fmt::format("{} has no compute queue", properties.deviceName);
  return {};
}

DeviceLimits Physical::limits() const {
  const VkPhysicalDeviceLimits& limits = properties.limits;
  DeviceLimits answer{.max_group_items = limits.maxComputeWorkGroupInvocations,
                      .shared_bytes = limits.maxComputeSharedMemorySize};
  std::copy_n(limits.maxComputeWorkGroupCount, 3, answer.max_groups.begin());
  std::copy_n(limits.maxComputeWorkGroupSize, 3, answer.max_group_size.begin());
  return answer;
}

Identity Physical::identity(const std::string& compiler) const {
  return {.api = "vulkan",
          .vendor = vendor_name(properties.vendorID),
          .device = properties.deviceName,
          // The driver accepts a pipeline cache only if this UUID matches.
          .driver = fmt::format("{}, cache {}", driver, hex(properties.pipelineCacheUUID)),
          .compiler = compiler,
          .formats = {binary_format}};
}

Result<std::shared_ptr<const Instance>> Instance::create() {
  auto loader = KILN_TRY(open_loader());
  const auto get = loader.get_instance_proc_addr;
  const auto create = reinterpret_cast<PFN_vkCreateInstance>(get(nullptr, "vkCreateInstance"));
  const auto version = reinterpret_cast<PFN_vkEnumerateInstanceVersion>(get(nullptr, "vkEnumerateInstanceVersion"));
  std::uint32_t offered = VK_API_VERSION_1_0;
  if (version != nullptr) version(&offered);
  if (create == nullptr || offered < VK_API_VERSION_1_1)
    return Error(ErrorCode::unsupported,
                 fmt::format("libvulkan.so.1 offers Vulkan {}; Kiln needs 1.1", version_text(offered)));
  const VkApplicationInfo application{.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                      .pNext = nullptr,
                                      .pApplicationName = "kiln",
                                      .applicationVersion = 0,
                                      .pEngineName = "kiln",
                                      .engineVersion = 0,
                                      .apiVersion = std::min(offered, VK_API_VERSION_1_2)};
  VkInstanceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
  info.pApplicationInfo = &application;
  VkInstance handle = nullptr;
  const VkResult made = create(&info, nullptr, &handle);
  if (made == VK_ERROR_INCOMPATIBLE_DRIVER) return no_driver();
  KILN_TRY(check(made, "creating a Vulkan instance"));
  auto functions = instance_functions(get, handle);
  if (!functions) {
    if (const auto destroy = reinterpret_cast<PFN_vkDestroyInstance>(get(handle, "vkDestroyInstance")))
      destroy(handle, nullptr);
    return std::move(functions).error();
  }
  return std::shared_ptr<const Instance>(
      std::make_shared<Instance>(std::move(loader), handle, *functions, true, application.apiVersion));
}

Result<std::shared_ptr<const Instance>> Instance::adopt(VkInstance instance, PFN_vkGetInstanceProcAddr get) {
  Loader loader{.get_instance_proc_addr = get};
  if (get == nullptr) {
    auto opened = KILN_TRY(open_loader());
    loader = std::move(opened);
  }
  auto functions = KILN_TRY(instance_functions(loader.get_instance_proc_addr, instance));
  return std::shared_ptr<const Instance>(
      std::make_shared<Instance>(std::move(loader), instance, functions, false, VK_API_VERSION_1_1));
}

Instance::~Instance() {
  if (owned_ && !base::process_ends()) vk.DestroyInstance(handle_, nullptr);
}

Result<std::vector<Physical>> Instance::devices() const {
  std::uint32_t count = 0;
  std::vector<VkPhysicalDevice> handles;
  VkResult listed = VK_INCOMPLETE;
  // A device may be added between the two calls.
  while (listed == VK_INCOMPLETE) {
    listed = vk.EnumeratePhysicalDevices(handle_, &count, nullptr);
    handles.resize(count);
    if (listed == VK_SUCCESS && count > 0) listed = vk.EnumeratePhysicalDevices(handle_, &count, handles.data());
  }
  handles.resize(count);
  // The loader returns this error if no driver has a device.
  if (listed == VK_ERROR_INITIALIZATION_FAILED || (listed == VK_SUCCESS && handles.empty())) return no_driver();
  KILN_TRY(check(listed, "listing Vulkan devices"));
  std::vector<Physical> found;
  found.reserve(handles.size());
  for (VkPhysicalDevice handle : handles) found.push_back(describe(handle));
  std::stable_sort(found.begin(), found.end(),
                   [](const Physical& a, const Physical& b) { return !a.software() && b.software(); });
  return found;
}

Physical Instance::describe(VkPhysicalDevice device) const {
  Physical physical{.handle = device};
  vk.GetPhysicalDeviceProperties(device, &physical.properties);
  vk.GetPhysicalDeviceMemoryProperties(device, &physical.memory);
  physical.usable_version = std::min(physical.properties.apiVersion, version_);
  const std::uint32_t version = physical.properties.driverVersion;
  physical.driver = fmt::format("driver {:#x}", version);
  if (physical.properties.apiVersion >= VK_API_VERSION_1_1) {
    VkPhysicalDeviceDriverProperties driver{};
    driver.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES;
    VkPhysicalDeviceMaintenance3Properties sizes{};
    sizes.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES;
    VkPhysicalDeviceIDProperties ids{};
    ids.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES;
    sizes.pNext = &ids;
    if (physical.properties.apiVersion >= VK_API_VERSION_1_2) ids.pNext = &driver;
    VkPhysicalDeviceProperties2 properties{};
    properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    properties.pNext = &sizes;
    vk.GetPhysicalDeviceProperties2(device, &properties);
    physical.max_allocation = sizes.maxMemoryAllocationSize;
    physical.traits = read_traits(vk, device);
    physical.uuid = backend::uuid_text(ids.deviceUUID);
    if (driver.driverName[0] != '\0')
      physical.driver = fmt::format("{} {:#x} {}", driver.driverName, version, driver.driverInfo);
  }
  std::uint32_t count = 0;
  vk.GetPhysicalDeviceQueueFamilyProperties(device, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  vk.GetPhysicalDeviceQueueFamilyProperties(device, &count, families.data());
  for (std::uint32_t family = 0; family < count; ++family) {
    const VkQueueFlags flags = families[family].queueCount > 0 ? families[family].queueFlags : 0;
    const bool draws = (flags & VK_QUEUE_GRAPHICS_BIT) != 0;
    const bool computes = (flags & VK_QUEUE_COMPUTE_BIT) != 0;
    const bool only_copies =
        (flags & (VK_QUEUE_TRANSFER_BIT | VK_QUEUE_COMPUTE_BIT | VK_QUEUE_GRAPHICS_BIT)) == VK_QUEUE_TRANSFER_BIT;
    physical.families.push_back(
        {computes, draws, families[family].queueCount, families[family].timestampValidBits});
    if (computes && (!physical.compute_family || (!draws && physical.families[*physical.compute_family].draws)))
      physical.compute_family = family;
    if (only_copies && !physical.copy_family) physical.copy_family = family;
  }
  return physical;
}

}  // namespace kiln::vulkan
