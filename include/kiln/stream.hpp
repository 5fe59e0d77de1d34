#pragma once

#include <memory>

#include <kiln/backend.hpp>
#include <kiln/launch.hpp>
#include <kiln/result.hpp>

namespace kiln {

/// The caller's own stream or queue, on which Kiln enqueues launches beside the caller's own work. Made by the
/// function stream() of an API.
///
/// Kiln enqueues and does nothing else: it does not wait, uses no other stream, and allocates at most small blocks
/// for uniform values (OpenGL, Vulkan). Order launches against other work as the API does for that stream, with its
/// own events and waits. Modules, buffers and other arguments must stay until the work has ended.
///
/// StreamExecutor (stream_executor.hpp) runs jobs, and the kernels of the library, on a stream.
///
/// Used by one thread at a time. Does not own the caller's stream, which must outlive it. Shares ownership of the
/// parts of its device that it needs.
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  virtual ~Stream() = default;

  /// Enqueues one run of a program. Fails as Device::launch() does, before anything is enqueued. Errors of the run
  /// itself are the API's: the caller's next wait for the stream reports them.
  virtual Result<void> launch(Module& module, const Launch& launch) = 0;

  /// Keeps `thing` until the work that is enqueued now has ended. Kiln checks that at later calls of hold(), and
  /// the destructor waits for it. For command buffers, and streams that are being captured into a graph, keeps it
  /// until the destructor, which does not wait then.
  virtual void hold(std::shared_ptr<const void> thing) = 0;

  /// Whether work runs in the order in which it was enqueued. False for out-of-order queues of OpenCL.
  virtual bool in_order() const noexcept { return true; }
  /// Whether the work that is enqueued now becomes part of a CUDA graph, which may run later, more than once, and
  /// on other streams.
  virtual bool is_captured() const { return false; }
};

}  // namespace kiln
