#pragma once

#include <vector>

#include <kiln/cuda.hpp>

#include "backend/cuda/device.hpp"

namespace kiln::cuda {

/// The CUDA parameters of the implementation that CUDA and HIP share.
const Platform& platform() noexcept;

/// Opens the newest NVRTC whose major version is not above the driver's. Needs no device.
Result<std::shared_ptr<const Rtc>> open_nvrtc(int driver_version);

/// Opens the newest NVRTC, for devices that are not here.
Result<std::shared_ptr<const Rtc>> find_nvrtc();

/// The compilation target for a compute capability, as in 90: machine code if NVRTC knows it, otherwise PTX for the
/// highest lower one that NVRTC knows. `version` is the driver's; `known` lists the capabilities that NVRTC knows.
Result<Target> target_for(int capability, int version, const std::vector<int>& known);

/// The identity of what compile_for() makes for an architecture: for "sm_90", that of a device of this architecture
/// whose driver has the newest NVRTC's major version; for "compute_90", that of PTX for this architecture and later
/// ones. Fails with invalid_request for a name with a suffix, as in "sm_90a": no device has one.
Result<Identity> identity_for(std::string_view architecture);

/// Whether no option of the request selects an architecture that does not fit this one, as -arch=sm_80 for sm_90.
bool selects_only(const Request& request, std::string_view architecture);

/// Lists the CUDA devices of this machine, and opens the one with this number.
std::vector<DeviceInfo> list_cuda_devices(const Log& log);
Result<std::shared_ptr<Device>> open_cuda_device(std::size_t number, const Log& log);

}  // namespace kiln::cuda
