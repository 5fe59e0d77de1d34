#pragma once

#include <string_view>

#include <fmt/format.h>

#include <kiln/device.hpp>

namespace kiln::backend {

/// Whether the device takes as many work groups as a launch of `program` has; drivers do not all check.
inline Result<void> check_groups(const Launch& launch, const DeviceLimits& limits, std::string_view program) {
  for (std::size_t i = 0; i < 3; ++i)
    if (launch.groups[i] > limits.max_groups[i])
      return Error(ErrorCode::invalid_request,
                   fmt::format("{} work groups in dimension {} for {}; the device has at most {}", launch.groups[i],
                               i, program, limits.max_groups[i]));
  return {};
}

}  // namespace kiln::backend
