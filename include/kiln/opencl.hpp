#pragma once

#include <memory>
#include <string>

#include <kiln/device.hpp>

struct _cl_context;
struct _cl_device_id;
struct _cl_mem;
struct _cl_program;

namespace kiln::opencl {

class Program;

/// A built OpenCL program and the kernel of it that was asked for.
class Module final : public kiln::Module {
 public:
  explicit Module(std::unique_ptr<Program> program) noexcept;
  ~Module() override;

  /// The cl_program. Kernels have arguments of their own and belong to one thread: make one for each.
  _cl_program* program() const noexcept;
  /// The name of the kernel.
  const std::string& entry() const noexcept;
  std::size_t bytes() const noexcept override;

  /// For the backend.
  Program& inside() const noexcept { return *program_; }

 private:
  std::unique_ptr<Program> program_;
};

/// The cl_mem of a buffer, the buffer's until it is destroyed; null for a buffer of another API.
_cl_mem* memory(const Buffer& buffer) noexcept;

/// A device in the caller's own cl_context, which is retained as long as the device, its programs or its buffers
/// live. Programs and buffers (see memory()) can be used with the caller's queues.
Result<std::shared_ptr<Device>> adopt(_cl_context* context, _cl_device_id* device, const Log& log = {});

}  // namespace kiln::opencl
