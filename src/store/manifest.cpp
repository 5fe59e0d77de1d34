#include "store/manifest.hpp"

#include "store/json_file.hpp"

namespace kiln::store {

nlohmann::ordered_json manifest_of(const Identity& identity) {
  nlohmann::ordered_json manifest;
  manifest["version"] = 2;
  manifest["identity"] = {{"api", identity.api},
                          {"vendor", identity.vendor},
                          {"device", identity.device},
                          {"driver", identity.driver},
                          {"compiler", identity.compiler},
                          {"formats", identity.formats},
                          {"digest", identity.digest().hex()},
                          {"target_digest", identity.target_digest().hex()}};
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
  return write_json(folder, manifest_name, manifest_of(identity));
}

Result<void> ensure_manifest(const base::Folder& folder, const Identity& identity) {
  // Much larger than an identity. A manifest of Kiln 0.1, which lists all programs, may be larger still.
  constexpr std::uint64_t largest = 64 << 10;
  const std::string expected = json_text(manifest_of(identity));
  const auto found = folder.read(manifest_name, largest);
  if (found && *found &&
      std::string_view(reinterpret_cast<const char*>((*found)->bytes.data()), (*found)->bytes.size()) == expected)
    return {};
  return write_manifest(folder, identity);
}

std::optional<Identity> read_manifest_identity(const base::Folder& folder) {
  const auto manifest = read_json(folder, manifest_name);
  return manifest ? identity_in(*manifest) : std::nullopt;
}

}  // namespace kiln::store
