#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/hip.hpp>

#include "backend/cuda/device.hpp"

namespace kiln::hip {

/// The HIP parameters of the implementation that CUDA and HIP share.
const cuda::Platform& platform() noexcept;

/// Lists the HIP devices of this machine, and opens the one with this number.
std::vector<DeviceInfo> list_hip_devices(const Log& log);
Result<std::shared_ptr<Device>> open_hip_device(std::size_t number, const Log& log);

/// The version of hipcc, as in "hipcc, HIP version: 5.2.21153-0". Fails with unsupported if it is missing.
Result<std::string> find_hipcc();

/// The identity of programs that compile_for() makes for an architecture, as in "gfx906" or "gfx90a:xnack-". No
/// device has it: devices compile with hipRTC. Fails with invalid_request for another architecture, and with
/// unsupported without hipcc or if it does not know the architecture.
Result<Identity> identity_for(std::string_view architecture);

/// Whether no option of the request selects another architecture than this one.
bool selects_only(const Request& request, std::string_view architecture);

/// The name for the kernel driver's architecture number: "gfx90a" for 90010; nullopt for 0, which is a CPU.
std::optional<std::string> architecture_name(unsigned long version);

/// The architecture of the GPU at a PCI address, as in "0000:03:00.0", from the kernel driver's topology `nodes`;
/// nullopt if it is not listed. HIP reports it only in a struct whose layout differs between versions.
std::optional<std::string> architecture_at(
    std::string_view pci_id, const std::filesystem::path& nodes = "/sys/class/kfd/kfd/topology/nodes");

}  // namespace kiln::hip
