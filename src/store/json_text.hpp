#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

namespace kiln::store {

/// Formats a JSON file.
std::string json_text(const nlohmann::ordered_json& json);

/// Parses a JSON object. Nothing if the text is not one, or if it exceeds Kiln's bounds on nesting and members.
/// Takes linear time.
std::optional<nlohmann::ordered_json> parse_json(std::string_view text);

/// The value as an integer; nothing if it is not an integer in the range of T. The library's conversion accepts
/// fractions, and is undefined for values out of range.
template <class T>
std::optional<T> whole_number(const nlohmann::ordered_json& value) {
  const auto fitting = [](auto number) {
    return std::in_range<T>(number) ? std::optional(static_cast<T>(number)) : std::nullopt;
  };
  if (value.is_number_unsigned()) return fitting(value.get<std::uint64_t>());
  return value.is_number_integer() ? fitting(value.get<std::int64_t>()) : std::nullopt;
}

}  // namespace kiln::store
