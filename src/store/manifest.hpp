#pragma once

#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include <kiln/identity.hpp>
#include <kiln/result.hpp>

#include "base/file.hpp"
#include "store/directory.hpp"

namespace kiln::store {

inline constexpr const char* manifest_name = "manifest.json";

/// What manifest.json holds: the identity in full, the format version, and the programs in the folder.
nlohmann::ordered_json manifest_of(const Identity& identity, const std::vector<StoredFile>& files);

/// The identity a manifest, or another file of a device folder, tells of; nothing where it is not to be understood.
std::optional<Identity> identity_in(const nlohmann::ordered_json& manifest);

/// Writes manifest.json.
Result<void> write_manifest(const base::Folder& folder, const Identity& identity);

/// The identity manifest.json tells of; nothing where it is missing or not to be understood.
std::optional<Identity> read_manifest_identity(const base::Folder& folder);

}  // namespace kiln::store
