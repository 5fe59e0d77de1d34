#pragma once

#include <vector>

#include <kiln/vulkan.hpp>

#include "backend/vulkan/memory.hpp"

namespace kiln::vulkan {

/// A launch that was found to fit: its program and its buffers as this backend knows them.
struct Fitting {
  const Module& program;
  std::vector<const DeviceBuffer*> buffers;
};

/// Sees whether a launch gives a program of `context` what it declares, within what the device has.
Result<Fitting> fit(const Context& context, const DeviceInfo& device, const kiln::Module& module,
                    const Launch& launch);

}  // namespace kiln::vulkan
