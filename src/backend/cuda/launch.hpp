#pragma once

#include <kiln/device.hpp>

#include "backend/cuda/kernel.hpp"

namespace kiln::cuda {

/// Whether `launch` is one that the device and the kernel take; the error says what does not fit.
Result<void> check_launch(const Kernel& kernel, const Kernel::Function& function, const DeviceInfo& info,
                          const Launch& launch);

}  // namespace kiln::cuda
