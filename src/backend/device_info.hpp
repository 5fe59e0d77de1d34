#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/device.hpp>

/// Translates driver-specific device properties to DeviceTraits, and DeviceInfo to and from JSON.
namespace kiln::backend {

/// The vendor with this PCI or Khronos vendor ID; empty if unknown.
std::string vendor_by_id(std::uint32_t id);
/// The vendor, recognised by the driver's vendor and product strings; `vendor` as it is if it is unknown.
std::string vendor_by_name(std::string_view vendor, std::string_view product);

/// As in "2c7a5a3e-0000-1111-2222-333344445555"; empty if all bytes are 0.
std::string uuid_text(std::span<const std::uint8_t, 16> bytes);
/// Whether a device has this UUID, or a prefix of it. "GPU-" or "MIG-" before it, dashes and the case of digits
/// do not matter. Less than 4 digits never match.
bool is_uuid_of(const DeviceInfo& device, std::string_view uuid);

/// Whether GPUs of an architecture, as in "sm_90" or "gfx90a", compute with f16, and whether they have matrix
/// units. False if the name has neither form.
bool computes_f16(std::string_view architecture);
bool has_matrix_units(std::string_view architecture);

/// One line of JSON, without a newline. Invalid UTF-8 is replaced.
std::string to_json_line(const std::vector<DeviceInfo>& devices);

/// Parses a line of to_json_line(); nullopt if it is damaged or incomplete.
std::optional<std::vector<DeviceInfo>> from_json_line(std::string_view line);

}  // namespace kiln::backend
