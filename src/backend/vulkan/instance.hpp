#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <kiln/device.hpp>

#include "backend/vulkan/loader.hpp"

namespace kiln::vulkan {

/// A physical device and its properties.
struct Physical {
  VkPhysicalDevice handle = nullptr;
  VkPhysicalDeviceProperties properties = {};
  VkPhysicalDeviceMemoryProperties memory = {};
  /// The maximum size of one allocation, in bytes.
  std::uint64_t max_allocation = 0;
  DeviceTraits traits = {};
  /// As DeviceInfo::uuid.
  std::string uuid = {};
  /// The version of Vulkan that programs can use: that of the device or of the instance, whichever is lower.
  std::uint32_t usable_version = 0;
  /// The driver's name, version and build.
  std::string driver = {};
  struct Family {
    bool computes = false;
    bool draws = false;
    std::uint32_t queues = 0;
    /// The number of valid bits of timestamps; 0 if the family has none.
    std::uint32_t timestamp_bits = 0;
  };
  /// The queue families. `compute_family` is the first that can compute but not draw, or the first that can
  /// compute: NVIDIA's GPUs took a third longer for the same program in a family that also draws. `copy_family` is
  /// the first that only copies, so that copies overlap with computation.
  std::vector<Family> families = {};
  std::optional<std::uint32_t> compute_family = {};
  std::optional<std::uint32_t> copy_family = {};

  bool software() const noexcept { return properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU; }
  /// Why programs cannot run on the device; empty if they can.
  std::string problem() const;
  DeviceLimits limits() const;
  /// `compiler` is the version of the compiler from GLSL to SPIR-V.
  Identity identity(const std::string& compiler) const;
};

/// A VkInstance with its functions. Thread-safe.
class Instance {
 public:
  /// Creates a VkInstance that this object owns. The error says what is missing.
  static Result<std::shared_ptr<const Instance>> create();
  /// Uses the caller's VkInstance, which must outlive this object. If `get` is null, uses that of libvulkan.so.1.
  static Result<std::shared_ptr<const Instance>> adopt(VkInstance instance, PFN_vkGetInstanceProcAddr get);

  /// `version` is the version of Vulkan that the instance was created for.
  Instance(Loader loader, VkInstance handle, const InstanceFunctions& functions, bool owned,
           std::uint32_t version) noexcept
      : vk(functions), loader_(std::move(loader)), handle_(handle), owned_(owned), version_(version) {}
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  /// The devices, GPUs before CPUs. Fails with no_device if there are none.
  Result<std::vector<Physical>> devices() const;
  Physical describe(VkPhysicalDevice device) const;

  const InstanceFunctions vk;

 private:
  const Loader loader_;
  const VkInstance handle_;
  const bool owned_;
  const std::uint32_t version_;
};

}  // namespace kiln::vulkan
