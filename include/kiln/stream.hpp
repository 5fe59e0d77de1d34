#pragma once

#include <kiln/backend.hpp>
#include <kiln/launch.hpp>
#include <kiln/result.hpp>

namespace kiln {

/// The caller's own stream or queue, on which Kiln enqueues launches beside the caller's own work. Made by the
/// function stream() of an API.
///
/// Kiln enqueues and does nothing else: it does not wait, does not allocate memory of the device, and uses no other
/// stream. Order launches against other work as the API does for that stream, with its own events and waits.
/// Modules, buffers and other arguments must stay until the work has ended.
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
};

}  // namespace kiln
