#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <kiln/identity.hpp>
#include <kiln/result.hpp>

#include "base/file.hpp"
#include "store/directory.hpp"

namespace kiln::store {

inline constexpr const char* manifest_name = "manifest.json";

/// Writes manifest.json: the identity in full, the format version, and the programs in the folder.
Result<void> write_manifest(const base::Folder& folder, const Identity& identity);

/// The identity manifest.json tells of; nothing where it is missing or not to be understood.
std::optional<Identity> read_manifest_identity(const base::Folder& folder);

}  // namespace kiln::store
