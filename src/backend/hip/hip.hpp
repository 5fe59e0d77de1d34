#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/hip.hpp>

#include "backend/cuda/device.hpp"

namespace kiln::hip {

/// What makes the shared implementation HIP.
const cuda::Platform& platform() noexcept;

/// The HIP devices of this machine, and the one with a number.
std::vector<DeviceInfo> list_hip_devices(const Log& log);
Result<std::shared_ptr<Device>> open_hip_device(std::size_t number, const Log& log);

/// "gfx90a" for 90010, as the kernel driver numbers architectures; nothing for 0, which is a CPU.
std::optional<std::string> architecture_name(unsigned long version);

/// The architecture of the GPU at a PCI address, as in "0000:03:00.0", by the kernel driver's list of `nodes`. HIP
/// itself tells it only in a struct that every version lays out anew.
std::optional<std::string> architecture_at(
    std::string_view pci_id, const std::filesystem::path& nodes = "/sys/class/kfd/kfd/topology/nodes");

}  // namespace kiln::hip
