#include "backend/device_json.hpp"

#include <nlohmann/json.hpp>

namespace kiln::backend {
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
          {"problem", info.problem}};
}

DeviceInfo info_of(const Json& json) {
  return {.name = json.at("name"),
          .identity = {json.at("api"), json.at("vendor"), json.at("device"), json.at("driver"), json.at("compiler"),
                       json.at("formats").get<std::vector<std::uint32_t>>()},
          .label = json.at("label"),
          .language = static_cast<Language>(json.at("language").get<int>()),
          .limits = {.max_groups = json.at("max_groups"),
                     .max_group_size = json.at("max_group_size"),
                     .max_group_items = json.at("max_group_items"),
                     .shared_bytes = json.at("shared_bytes")},
          .traits = traits_of(json.at("traits")),
          .software = json.at("software"),
          .lanes = json.at("lanes"),
          .problem = json.at("problem")};
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
