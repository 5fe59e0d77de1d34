#pragma once

#include <vector>

#include <kiln/cuda.hpp>

#include "backend/cuda/device.hpp"

namespace kiln::cuda {

/// The CUDA parameters of the implementation that CUDA and HIP share.
const Platform& platform() noexcept;

/// Opens the newest NVRTC whose major version is not above the driver's. Needs no device.
Result<std::shared_ptr<const Rtc>> open_nvrtc(int driver_version);

/// The compilation target for a compute capability, as in 90: machine code if NVRTC knows it, otherwise PTX for the
/// highest lower one that NVRTC knows. `version` is the driver's; `known` lists the capabilities that NVRTC knows.
Result<Target> target_for(int capability, int version, const std::vector<int>& known);

/// The identity of a device of this architecture, as in "sm_90", with a driver of the newest NVRTC's major version.
/// compile_for() makes binaries for it. Fails with invalid_request for a name with a suffix, as in "sm_90a": no
/// device has one.
Result<Identity> identity_for(std::string_view architecture);

/// Lists the CUDA devices of this machine, and opens the one with this number.
std::vector<DeviceInfo> list_cuda_devices(const Log& log);
Result<std::shared_ptr<Device>> open_cuda_device(std::size_t number, const Log& log);

}  // namespace kiln::cuda
