#pragma once

#include <vector>

#include <kiln/device.hpp>

#include "backend/cuda/loaded_image.hpp"

namespace kiln::cuda {

/// A launch that its kernel and the device take, in the driver's terms. The kernel and the launch outlive it.
class PreparedLaunch {
 public:
  /// The error says what does not fit. `kernel` is null for a module of another API; `context` and `info` are the
  /// device's.
  static Result<PreparedLaunch> make(LoadedImage* kernel, const Launch& launch, const Context& context,
                                     const DeviceInfo& info);

  const LoadedImage& kernel() const noexcept { return *kernel_; }
  /// False for no groups, which drivers refuse.
  bool is_work() const noexcept;
  /// Returns what the driver does, which has read the arguments then. Only within a ScopedCurrent.
  Status enqueue(Handle stream) const;

 private:
  PreparedLaunch(const LoadedImage& kernel, Handle function, const Launch& launch) noexcept
      : kernel_(&kernel), function_(function), launch_(&launch) {}

  const LoadedImage* kernel_;
  Handle function_;
  const Launch* launch_;
  std::vector<Address> addresses_;
};

}  // namespace kiln::cuda
