#include "backend/device_info.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace kiln::backend {
namespace {

struct Vendor {
  std::string_view name;
  std::uint32_t id;
  /// Substrings of the vendor's driver strings, up to three; unused ones are empty.
  std::array<std::string_view, 3> words;
};

// Mesa comes last: its GPU drivers also name the GPU's vendor.
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

/// 90 for "sm_90"; 0 for other forms of names.
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

std::string uuid_text(std::span<const std::uint8_t, 16> bytes) {
  if (std::ranges::all_of(bytes, [](std::uint8_t byte) { return byte == 0; })) return {};
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", bytes[i]);
  }
  return text;
}

bool is_uuid_of(const DeviceInfo& device, std::string_view uuid) {
  for (const std::string_view prefix : {"GPU-", "MIG-"})
    if (uuid.starts_with(prefix)) uuid.remove_prefix(prefix.size());
  const auto digits_of = [](std::string_view text) {
    std::string digits;
    for (const char c : text)
      if (c != '-') digits += c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
    return digits;
  };
  const std::string wanted = digits_of(uuid);
  return wanted.size() >= 4 && digits_of(device.uuid).starts_with(wanted);
}

bool computes_f16(std::string_view architecture) {
  if (architecture.starts_with("gfx")) return !starts_with_any(architecture, std::array{"gfx6", "gfx7"});
  return compute_capability(architecture) >= 53;
}

bool has_matrix_units(std::string_view architecture) {
  // AMD has matrix cores in CDNA, and in RDNA since RDNA 3.
  constexpr std::array amd = {"gfx908", "gfx90a", "gfx94", "gfx95", "gfx11", "gfx12"};
  return starts_with_any(architecture, amd) || compute_capability(architecture) >= 70;
}

namespace {

using Json = nlohmann::json;

Json to_json(const DeviceTraits& traits) {
  return {{"vendor", traits.vendor},
          {"architecture", traits.architecture},
          {"subgroup_width", traits.subgroup_width},
          {"compute_units", traits.compute_units},
          {"fp16", traits.fp16},
          {"matrix_units", traits.matrix_units}};
}

DeviceTraits traits_of(const Json& json) {
  return {.vendor = json.at("vendor"),
          .architecture = json.at("architecture"),
          .subgroup_width = json.at("subgroup_width"),
          .compute_units = json.at("compute_units"),
          .fp16 = json.at("fp16"),
          .matrix_units = json.at("matrix_units")};
}

Json to_json(const DeviceInfo& info) {
  const Identity& identity = info.identity;
  return {{"name", info.name},
          {"label", info.label},
          {"uuid", info.uuid},
          {"api", identity.api},
          {"vendor", identity.vendor},
          {"device", identity.device},
          {"driver", identity.driver},
          {"compiler", identity.compiler},
          {"formats", identity.formats},
          {"language", static_cast<int>(info.language)},
          {"max_groups", info.limits.max_groups},
          {"max_group_size", info.limits.max_group_size},
          {"max_group_items", info.limits.max_group_items},
          {"shared_bytes", info.limits.shared_bytes},
          {"traits", to_json(info.traits)},
          {"software", info.software},
          {"lanes", info.lanes},
          {"problem", info.problem},
          {"compiler_problem", info.compiler_problem}};
}

DeviceInfo info_of(const Json& json) {
  return {.name = json.at("name"),
          .identity = {json.at("api"), json.at("vendor"), json.at("device"), json.at("driver"), json.at("compiler"),
                       json.at("formats").get<std::vector<std::uint32_t>>()},
          .label = json.at("label"),
          .uuid = json.at("uuid"),
          .language = static_cast<Language>(json.at("language").get<int>()),
          .limits = {.max_groups = json.at("max_groups"),
                     .max_group_size = json.at("max_group_size"),
                     .max_group_items = json.at("max_group_items"),
                     .shared_bytes = json.at("shared_bytes")},
          .traits = traits_of(json.at("traits")),
          .software = json.at("software"),
          .lanes = json.at("lanes"),
          .problem = json.at("problem"),
          .compiler_problem = json.at("compiler_problem")};
}

}  // namespace

std::string to_json_line(const std::vector<DeviceInfo>& devices) {
  Json list = Json::array();
  for (const DeviceInfo& info : devices) list.push_back(to_json(info));
  return list.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<std::vector<DeviceInfo>> from_json_line(std::string_view line) {
  try {
    const Json list = Json::parse(line);
    if (!list.is_array()) return std::nullopt;
    std::vector<DeviceInfo> devices;
    for (const Json& json : list) devices.push_back(info_of(json));
    return devices;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace kiln::backend
