#include "backend/traits.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace kiln::backend {
namespace {

struct Vendor {
  std::string_view name;
  std::uint32_t id;
  /// What the texts of its drivers have in them, up to three.
  std::array<std::string_view, 3> words;
};

// Mesa is the last: its drivers for GPUs name both.
constexpr std::array<Vendor, 11> vendors = {{{"NVIDIA", 0x10de, {"NVIDIA", "nouveau"}},
                                             {"AMD", 0x1002, {"AMD", "Advanced Micro Devices", "Radeon"}},
                                             {"Intel", 0x8086, {"Intel"}},
                                             {"Arm", 0x13b5, {"ARM", "Arm", "Mali"}},
                                             {"Qualcomm", 0x5143, {"QUALCOMM", "Qualcomm", "Adreno"}},
                                             {"Imagination", 0x1010, {"Imagination", "PowerVR"}},
                                             {"Apple", 0x106b, {"Apple"}},
                                             {"Broadcom", 0x14e4, {"Broadcom", "V3D"}},
                                             {"Samsung", 0x144d, {"Samsung", "Xclipse"}},
                                             {"Google", 0x1ae0, {"Google", "SwiftShader"}},
                                             {"Mesa", 0x10005, {"Mesa", "llvmpipe", "softpipe"}}}};

/// 90 for "sm_90"; 0 for others.
int compute_capability(std::string_view architecture) {
  constexpr std::string_view start = "sm_";
  int capability = 0;
  if (architecture.starts_with(start))
    std::from_chars(architecture.data() + start.size(), architecture.data() + architecture.size(), capability);
  return capability;
}

bool starts_with_any(std::string_view text, const auto& starts) {
  return std::ranges::any_of(starts, [text](std::string_view start) { return text.starts_with(start); });
}

}  // namespace

std::string vendor_by_id(std::uint32_t id) {
  const auto* const found = std::ranges::find(vendors, id, &Vendor::id);
  return found != vendors.end() ? std::string(found->name) : "";
}

std::string vendor_by_name(std::string_view vendor, std::string_view product) {
  const auto has = [](std::string_view text, std::string_view word) {
    return !word.empty() && text.find(word) != std::string_view::npos;
  };
  for (const Vendor& known : vendors)
    for (const std::string_view word : known.words)
      if (has(vendor, word) || has(product, word)) return std::string(known.name);
  return std::string(vendor);
}

bool computes_f16(std::string_view architecture) {
  if (architecture.starts_with("gfx")) return !starts_with_any(architecture, std::array{"gfx6", "gfx7"});
  return compute_capability(architecture) >= 53;
}

bool has_matrix_units(std::string_view architecture) {
  // Matrix cores of AMD's CDNA, and those of RDNA from its third generation on.
  constexpr std::array amd = {"gfx908", "gfx90a", "gfx94", "gfx95", "gfx11", "gfx12"};
  return starts_with_any(architecture, amd) || compute_capability(architecture) >= 70;
}

}  // namespace kiln::backend
