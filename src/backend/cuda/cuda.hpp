#pragma once

#include <vector>

#include <kiln/cuda.hpp>

#include "backend/cuda/device.hpp"

namespace kiln::cuda {

/// What makes the shared implementation CUDA.
const Platform& platform() noexcept;

/// NVRTC, which works without a device: the newest whose major version is not above the driver's.
Result<std::shared_ptr<const Rtc>> open_nvrtc(int driver_version);

/// What programs for a compute capability, as in 90, are compiled to: code where NVRTC knows it, else PTX of the
/// highest it knows below. `version` is the driver's.
Result<Target> target_for(int capability, int version, const std::vector<int>& known);

/// The CUDA devices of this machine, and the one with a number.
std::vector<DeviceInfo> list_cuda_devices(const Log& log);
Result<std::shared_ptr<Device>> open_cuda_device(std::size_t number, const Log& log);

}  // namespace kiln::cuda
