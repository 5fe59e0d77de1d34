#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include <kiln/result.hpp>

#include "base/file.hpp"
#include "store/json_text.hpp"

namespace kiln::store {

/// Atomically replaces a JSON file.
Result<void> write_json(const base::Folder& folder, const std::string& name, const nlohmann::ordered_json& json);

/// Reads the object in a JSON file; nothing if the file is missing, too large or not a JSON object.
std::optional<nlohmann::ordered_json> read_json(const base::Folder& folder, const std::string& name);

}  // namespace kiln::store
