#include "store/manifest.hpp"

#include "store/json_file.hpp"

namespace kiln::store {

nlohmann::ordered_json manifest_of(const Identity& identity, const std::vector<StoredFile>& files) {
  nlohmann::ordered_json manifest;
  manifest["version"] = 1;
  manifest["identity"] = {{"api", identity.api},
                          {"vendor", identity.vendor},
                          {"device", identity.device},
                          {"driver", identity.driver},
                          {"compiler", identity.compiler},
                          {"formats", identity.formats},
                          {"digest", identity.digest().hex()}};
  auto& programs = manifest["programs"] = nlohmann::ordered_json::array();
  for (const StoredFile& file : files)
    programs.push_back(
        {{"name", file.key.name}, {"key", file.key.digest.hex()}, {"file", file.name}, {"bytes", file.bytes}});
  return manifest;
}

std::optional<Identity> identity_in(const nlohmann::ordered_json& manifest) {
  try {
    const auto& found = manifest.at("identity");
    Identity identity{found.at("api"), found.at("vendor"), found.at("device"), found.at("driver"),
                      found.at("compiler")};
    const auto& formats = found.at("formats");
    if (!formats.is_array()) return std::nullopt;
    for (const auto& one : formats) {
      const auto format = whole_number<std::uint32_t>(one);
      if (!format) return std::nullopt;
      identity.formats.push_back(*format);
    }
    return identity;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

Result<void> write_manifest(const base::Folder& folder, const Identity& identity) {
  auto files = stored_files(folder);
  if (!files) return std::move(files).error();
  return write_json(folder, manifest_name, manifest_of(identity, *files));
}

std::optional<Identity> read_manifest_identity(const base::Folder& folder) {
  const auto manifest = read_json(folder, manifest_name);
  return manifest ? identity_in(*manifest) : std::nullopt;
}

}  // namespace kiln::store
