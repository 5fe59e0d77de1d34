#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <kiln/device.hpp>

namespace kiln::backend {

/// A GPU API: CUDA, HIP, Vulkan, OpenGL or OpenCL.
struct Api {
  std::string_view name;
  /// Lists the API's devices, GPUs first. DeviceInfo::problem says why a device cannot be used. If the API has no
  /// driver, the list has one entry, named after the API.
  std::vector<DeviceInfo> (*list)(const Log& log);
  Result<std::shared_ptr<Device>> (*open)(std::size_t number, const Log& log);
};

/// All APIs, in the order of preference for GPUs: the vendors' own APIs first.
std::span<const Api> apis() noexcept;

/// Returns null if no API has this name.
const Api* find_api(std::string_view name) noexcept;

}  // namespace kiln::backend
