#pragma once

#include <memory>

#include <kiln/cache.hpp>
#include <kiln/executor.hpp>
#include <kiln/result.hpp>
#include <kiln/stream.hpp>

namespace kiln {

/// Runs jobs on a stream of the caller's own, in order with the caller's other work there. Kernels of the library
/// run on it as well: `gemm(stream_executor, a, b)`.
///
///     auto stream = kiln::cuda::stream(*device, my_stream).value();
///     kiln::StreamExecutor executor(cache, *stream);
///     executor.submit(job).value();   // enqueued, not waited for
///
/// A job only enqueues its steps. Memory of the job is the caller's (JobMemory::buffer), or lent by this object
/// (JobMemory::bytes), which reuses it for later jobs. Copies from and to the host are the caller's own.
///
/// Before you capture a job into a CUDA graph, run it once, so that its programs are loaded. Memory that is lent
/// during a capture belongs to the graph. The stream keeps it and the programs until it is destroyed, so destroy
/// the graph first.
///
/// Used by one thread at a time.
class StreamExecutor {
 public:
  /// `cache` must be one for the device of `stream`. Both must outlive this object.
  StreamExecutor(Cache& cache, Stream& stream);
  /// Does not wait: the stream holds what its work needs.
  ~StreamExecutor();
  StreamExecutor(const StreamExecutor&) = delete;
  StreamExecutor& operator=(const StreamExecutor&) = delete;

  /// Gets the programs of the steps, which may compile, waits for the futures in Job::after, and enqueues the
  /// steps. The stream shares ownership of the programs and buffers until the work has ended. Job::time_limit and
  /// Job::report have no effect.
  ///
  /// Fails with invalid_request for a job that is invalid or that copies from or to the host (`upload`, `fill`,
  /// `download` or `drain`), and for a stream whose work is not in order; with the errors of Cache::get() and
  /// Device::allocate(), and with the code of the future in Job::after that failed, before anything is enqueued;
  /// and as Stream::launch() does. Earlier steps of the job then remain enqueued.
  Result<void> submit(const Job& job);

  /// As given to the constructor.
  Cache& cache() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
