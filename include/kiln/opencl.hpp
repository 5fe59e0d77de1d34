#pragma once

#include <memory>
#include <string>

#include <kiln/device.hpp>
#include <kiln/stream.hpp>

struct _cl_context;
struct _cl_device_id;
struct _cl_command_queue;
struct _cl_mem;
struct _cl_program;
struct _cl_sampler;

namespace kiln::opencl {

/// A built OpenCL program, or one of its kernels (see Program::entry()), made by a device of this API: see
/// Program::as(). All functions may be called from any thread.
class Module : public kiln::Module {
 public:
  /// The cl_program; retain it to keep it longer than this. A cl_kernel holds its arguments, so each thread needs
  /// one of its own.
  virtual _cl_program* program() const noexcept = 0;
  /// The name of the kernel, for clCreateKernel; empty if the program has several. Valid until this is destroyed.
  virtual const std::string& kernel_name() const noexcept = 0;
};

/// The cl_mem of a buffer. It belongs to the buffer and is valid until that is destroyed; null for a buffer of
/// another API. May be called from any thread.
_cl_mem* memory(const Buffer& buffer) noexcept;

/// The caller's own buffer, which is retained as long as the result. May be called from any thread. Fails with
/// invalid_request for a device of another API, and if `memory` is not a buffer of the device's context.
Result<std::unique_ptr<Buffer>> wrap(Device& device, _cl_mem* memory);

/// The caller's own image or sampler as an argument. Not retained: it must stay until the launch has ended.
inline Argument image(_cl_mem* image) noexcept {
  return NativeObject{NativeObject::Kind::cl_image, reinterpret_cast<std::uintptr_t>(image)};
}
inline Argument sampler(_cl_sampler* sampler) noexcept {
  return NativeObject{NativeObject::Kind::cl_sampler, reinterpret_cast<std::uintptr_t>(sampler)};
}

/// Launches on the caller's own command queue, which is retained as long as the result. See kiln::Stream. On an
/// out-of-order queue, order launches by clEnqueueBarrierWithWaitList. On PoCL before 7.0, a launch may wait for
/// earlier launches of the same kernel to end, so do not hold the queue back by an event of your own. May be called
/// from any thread. Fails with invalid_request for a device of another API, and for a queue of another context or
/// device.
Result<std::unique_ptr<Stream>> stream(Device& device, _cl_command_queue* queue);

/// A device in the caller's own cl_context, which is retained as long as the device, its programs or its buffers
/// live. Programs and buffers (see memory()) can be used with the caller's queues. May be called from any thread.
/// Fails with invalid_request if an argument is null or `device` is not one of the context's, no_device if
/// libOpenCL.so.1 is missing or the device is unavailable or has no compiler, unsupported before OpenCL 1.2,
/// device_failed or out_of_memory.
Result<std::shared_ptr<Device>> adopt(_cl_context* context, _cl_device_id* device, const Log& log = {});

}  // namespace kiln::opencl
