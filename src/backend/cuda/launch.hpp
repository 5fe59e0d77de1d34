#pragma once

#include <vector>

#include <kiln/device.hpp>

#include "backend/cuda/kernel.hpp"

namespace kiln::cuda {

/// Whether `launch` is one that the device and the kernel take; the error says what does not fit.
Result<void> check_launch(const Kernel& kernel, const Kernel::Function& function, const DeviceInfo& info,
                          const Launch& launch);

/// The addresses of the launch's buffers; an error where one is not of this context.
Result<std::vector<Address>> buffer_addresses(const Context& context, const Launch& launch);

}  // namespace kiln::cuda
