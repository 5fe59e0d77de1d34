#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/device.hpp>

namespace kiln::backend {

/// Devices as one line of JSON, without a newline. Bytes that are not UTF-8 are replaced.
std::string to_json_line(const std::vector<DeviceInfo>& devices);

/// The devices in a line that to_json_line() made; nothing if it is damaged or incomplete.
std::optional<std::vector<DeviceInfo>> from_json_line(std::string_view line);

}  // namespace kiln::backend
