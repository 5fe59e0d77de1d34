#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <kiln/device.hpp>

#include "backend/vulkan/loader.hpp"

namespace kiln::vulkan {

/// What a physical device is and can do.
struct Physical {
  VkPhysicalDevice handle = nullptr;
  VkPhysicalDeviceProperties properties = {};
  VkPhysicalDeviceMemoryProperties memory = {};
  /// The most bytes one allocation may have.
  std::uint64_t max_allocation = 0;
  DeviceTraits traits = {};
  /// The driver's name, version and build.
  std::string driver = {};
  struct Family {
    bool computes = false;
    bool draws = false;
    std::uint32_t queues = 0;
    /// How many bits of its timestamps count; 0 where it writes none.
    std::uint32_t timestamp_bits = 0;
  };
  /// The families of queues; the first that can compute, of those that cannot draw if there are such: the same
  /// program took a third longer where NVIDIA's also draws; and the first that only copies, while others compute.
  std::vector<Family> families = {};
  std::optional<std::uint32_t> compute_family = {};
  std::optional<std::uint32_t> copy_family = {};

  bool software() const noexcept { return properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU; }
  /// Why programs cannot run on it; empty where they can.
  std::string problem() const;
  DeviceLimits limits() const;
  /// `compiler` is what turns GLSL into SPIR-V.
  Identity identity(const std::string& compiler) const;
};

/// A VkInstance with its functions. Safe for any number of threads.
class Instance {
 public:
  /// An instance of Kiln's own; the error says what is missing.
  static Result<std::shared_ptr<const Instance>> create();
  /// The caller's, which outlives this one; `get` may be null.
  static Result<std::shared_ptr<const Instance>> adopt(VkInstance instance, PFN_vkGetInstanceProcAddr get);

  Instance(Loader loader, VkInstance handle, const InstanceFunctions& functions, bool owned) noexcept
      : vk(functions), loader_(std::move(loader)), handle_(handle), owned_(owned) {}
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  /// The devices, GPUs before CPUs; never none.
  Result<std::vector<Physical>> devices() const;
  Physical describe(VkPhysicalDevice device) const;

  const InstanceFunctions vk;

 private:
  const Loader loader_;
  const VkInstance handle_;
  const bool owned_;
};

}  // namespace kiln::vulkan
