#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <kiln/result.hpp>

#include "base/file.hpp"

namespace kiln::store {

/// The text of a JSON file.
std::string json_text(const nlohmann::ordered_json& json);

/// Replaces a JSON file whole.
Result<void> write_json(const base::Folder& folder, const std::string& name, const nlohmann::ordered_json& json);

/// The object a text holds; nothing where it is no JSON object, or one nested deeper than any of Kiln's or with
/// more members. Takes time in proportion to the text.
std::optional<nlohmann::ordered_json> parse_json(std::string_view text);

/// The object in a JSON file; nothing where the file is missing, too large, or no JSON object.
std::optional<nlohmann::ordered_json> read_json(const base::Folder& folder, const std::string& name);

/// The whole number a value is; nothing where it is none, or one that T does not hold. The library's own conversion
/// takes fractions, and is undefined for those that are too large.
template <class T>
std::optional<T> whole_number(const nlohmann::ordered_json& value) {
  const auto fitting = [](auto number) {
    return std::in_range<T>(number) ? std::optional(static_cast<T>(number)) : std::nullopt;
  };
  if (value.is_number_unsigned()) return fitting(value.get<std::uint64_t>());
  return value.is_number_integer() ? fitting(value.get<std::int64_t>()) : std::nullopt;
}

}  // namespace kiln::store
