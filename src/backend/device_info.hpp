#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/device.hpp>

/// What drivers say of a device in words of their own, in those of DeviceTraits.
namespace kiln::backend {

/// The vendor with a number of PCI's, or of Khronos's; empty where there is none that is known.
std::string vendor_by_id(std::uint32_t id);
/// The vendor by what a driver calls it and its product; the driver's own word where that is none that is known.
std::string vendor_by_name(std::string_view vendor, std::string_view product);

/// Whether GPUs of an architecture, such as "sm_90" or "gfx90a", compute with f16, and whether they have units that
/// multiply matrices; false where it is none that is known.
bool computes_f16(std::string_view architecture);
bool has_matrix_units(std::string_view architecture);

/// Devices as one line of JSON, without a newline. Bytes that are not UTF-8 are replaced.
std::string to_json_line(const std::vector<DeviceInfo>& devices);

/// The devices in a line that to_json_line() made; nothing if it is damaged or incomplete.
std::optional<std::vector<DeviceInfo>> from_json_line(std::string_view line);

}  // namespace kiln::backend
