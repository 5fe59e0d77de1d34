#pragma once

#include <memory>

#include <kiln/stream.hpp>

#include "backend/cuda/device.hpp"

namespace kiln::cuda {

/// Launches on the caller's stream. Null is the default stream of the device's context. Fails with invalid_request
/// for a device of another platform or a stream of another context.
Result<std::unique_ptr<kiln::Stream>> stream_on(const Platform& platform, Device& device, Handle stream);

/// The caller's memory as a buffer that does not own it. Fails with invalid_request for a device of another
/// platform, and if the driver does not know `bytes` bytes at the address.
Result<std::unique_ptr<Buffer>> wrap_memory(const Platform& platform, Device& device, Address address,
                                            std::size_t bytes);

}  // namespace kiln::cuda
