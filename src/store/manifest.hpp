#pragma once

#include <optional>

#include <nlohmann/json.hpp>

#include <kiln/identity.hpp>
#include <kiln/result.hpp>

#include "base/file.hpp"

namespace kiln::store {

inline constexpr const char* manifest_name = "manifest.json";

/// What manifest.json holds: the identity in full and the version of the folder's format.
nlohmann::ordered_json manifest_of(const Identity& identity);

/// The identity a manifest, or another file of a device folder, tells of; nothing where it is not to be understood.
std::optional<Identity> identity_in(const nlohmann::ordered_json& manifest);

/// Writes manifest.json.
Result<void> write_manifest(const base::Folder& folder, const Identity& identity);
/// Writes manifest.json if it is missing or says anything else.
Result<void> ensure_manifest(const base::Folder& folder, const Identity& identity);

/// The identity manifest.json tells of; nothing where it is missing or not to be understood.
std::optional<Identity> read_manifest_identity(const base::Folder& folder);

}  // namespace kiln::store
