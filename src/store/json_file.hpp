#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <kiln/result.hpp>

#include "base/file.hpp"

namespace kiln::store {

/// Replaces a JSON file whole.
Result<void> write_json(const base::Folder& folder, const std::string& name, const nlohmann::ordered_json& json);

/// The object a text holds; nothing where it is no JSON object, or one nested deeper or with more keys than any of
/// Kiln's.
std::optional<nlohmann::ordered_json> parse_json(std::string_view text);

/// The object in a JSON file; nothing where the file is missing, too large, or no JSON object.
std::optional<nlohmann::ordered_json> read_json(const base::Folder& folder, const std::string& name);

}  // namespace kiln::store
