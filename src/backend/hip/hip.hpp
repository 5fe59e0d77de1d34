#pragma once

#include <vector>

#include <kiln/hip.hpp>

#include "backend/cuda/device.hpp"

namespace kiln::hip {

/// What makes the shared implementation HIP.
const cuda::Platform& platform() noexcept;

/// The HIP devices of this machine, and the one with a number.
std::vector<DeviceInfo> list_hip_devices(const Log& log);
Result<std::shared_ptr<Device>> open_hip_device(std::size_t number, const Log& log);

}  // namespace kiln::hip
