#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace kiln::hip {

/// "gfx90a" for 90010, as the kernel driver numbers architectures; nothing for 0, which is a CPU.
std::optional<std::string> architecture_name(unsigned long version);

/// The architecture of the GPU at a PCI address, as in "0000:03:00.0", by the kernel driver's list of `nodes`. HIP
/// itself tells it only in a struct that every version lays out anew.
std::optional<std::string> architecture_at(
    std::string_view pci_id, const std::filesystem::path& nodes = "/sys/class/kfd/kfd/topology/nodes");

}  // namespace kiln::hip
