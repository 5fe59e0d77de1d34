#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kiln/device.hpp>

#include "backend/opencl/program.hpp"

namespace kiln::opencl {

/// The kernel of a module. Fails with invalid_request if the module is of another device or has several kernels.
Result<const ProgramKernel*> kernel_of(const kiln::Module& module, const Context& context, const DeviceInfo& info);

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

  PreparedLaunch(const ProgramKernel& kernel, Loan object) noexcept : kernel_(kernel), object_(std::move(object)) {}

  Result<void> set_sizes(const Launch& launch, const DeviceLimits& limits);
  Result<void> set_arguments(const Launch& launch, const DeviceInfo& info);
  Result<void> set_argument(std::size_t i, const Argument& argument, std::string_view device);
  Result<void> set_buffer(std::size_t i, const Argument::Range& range, std::string_view device);
  /// A part of a buffer, which lives until the launch is queued.
  Result<cl_mem> part_of(cl_mem memory, std::size_t offset, std::size_t i);
  Result<void> set(std::size_t i, std::size_t bytes, const void* value);
  /// As in "saxpy: argument 2 (float* x)".
  std::string describe(std::size_t i) const;

  const ProgramKernel& kernel_;
  Loan object_;
  std::vector<std::shared_ptr<_cl_mem>> parts_ = {};
  Sizes offset_ = {};
  Sizes global_ = {};
  /// {}: the driver chooses.
  Sizes local_ = {};
};

}  // namespace kiln::opencl
