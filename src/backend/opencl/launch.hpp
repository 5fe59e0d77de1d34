#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include <kiln/device.hpp>

#include "backend/opencl/program.hpp"

namespace kiln::opencl {

/// A validated launch, and a kernel object that holds its arguments. The program must outlive it.
class PreparedLaunch {
 public:
  /// The error says what does not fit. `context` and `info` are the device's.
  static Result<PreparedLaunch> make(const kiln::Module& module, const Launch& launch, const Context& context,
                                     const DeviceInfo& info);

  /// The name of the program.
  const std::string& name() const noexcept { return kernel_.program().name(); }
  /// False if the launch has no groups: drivers treat it differently.
  bool is_work() const noexcept;
  /// Returns the driver's error code. The kernel object may be reused at once: a queued command keeps the arguments
  /// that it was queued with.
  cl_int enqueue(cl_command_queue queue, cl_event* event) const;

 private:
  using Loan = backend::Pool<KernelObject>::Loan;
  using Sizes = std::array<std::size_t, 3>;

  PreparedLaunch(const ProgramKernel& kernel, Loan object, Sizes global, Sizes local) noexcept
      : kernel_(kernel), object_(std::move(object)), global_(global), local_(local) {}

  const ProgramKernel& kernel_;
  Loan object_;
  Sizes global_;
  Sizes local_;
};

}  // namespace kiln::opencl
