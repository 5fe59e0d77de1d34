#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

}  // namespace kiln::backend
