#pragma once

#include <array>

#include <kiln/device.hpp>

#include "backend/opencl/program.hpp"

namespace kiln::opencl {

/// A launch that its program and the device take, and a kernel that holds its arguments.
class PreparedLaunch {
 public:
  /// The error says what does not fit. `context` and `info` are the device's.
  static Result<PreparedLaunch> make(const kiln::Module& module, const Launch& launch, const Context& context,
                                     const DeviceInfo& info);

  const BuiltProgram& program() const noexcept { return program_; }
  /// False for no groups, which drivers disagree on.
  bool is_work() const noexcept;
  /// Returns what the driver does. The kernel may be another launch's at once: a command keeps the arguments that
  /// its kernel had when it was queued.
  cl_int enqueue(cl_command_queue queue, cl_event* event) const;

 private:
  using KernelLoan = backend::Pool<KernelObject>::Loan;
  using Sizes = std::array<std::size_t, 3>;

  PreparedLaunch(const BuiltProgram& program, KernelLoan kernel, Sizes global, Sizes local) noexcept
      : program_(program), kernel_(std::move(kernel)), global_(global), local_(local) {}

  const BuiltProgram& program_;
  KernelLoan kernel_;
  Sizes global_;
  Sizes local_;
};

}  // namespace kiln::opencl
