#pragma once

#include <memory>
#include <string>

#include <kiln/device.hpp>

struct _cl_context;
struct _cl_device_id;
struct _cl_mem;
struct _cl_program;

namespace kiln::opencl {

/// A built OpenCL program and the kernel of it that was asked for.
class Module : public kiln::Module {
 public:
  /// The cl_program. A kernel object holds its arguments, so each thread needs one of its own.
  virtual _cl_program* program() const noexcept = 0;
  /// The name of the kernel.
  virtual const std::string& entry() const noexcept = 0;
};

/// The cl_mem of a buffer, the buffer's until it is destroyed; null for a buffer of another API.
_cl_mem* memory(const Buffer& buffer) noexcept;

/// A device in the caller's own cl_context, which is retained as long as the device, its programs or its buffers
/// live. Programs and buffers (see memory()) can be used with the caller's queues.
Result<std::shared_ptr<Device>> adopt(_cl_context* context, _cl_device_id* device, const Log& log = {});

}  // namespace kiln::opencl
