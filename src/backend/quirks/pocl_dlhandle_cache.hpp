#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "backend/opencl/library.hpp"

namespace kiln::backend::quirks {

/// PoCL before 7.0 compiles another variant of a kernel for each launch that is wider than all earlier ones. When a
/// launch ends, PoCL looks up the variant to release by the sizes of the launch. It may find the variant of another
/// launch that still runs, and then aborts in pocl_release_dlhandle_cache().
///
/// Fixed in 7.0: https://github.com/pocl/pocl/commit/c9ac4c0c3f1635c6e00a9cc304ddce87bb7744a2.
///
/// Work-around: a launch that is wider than all earlier ones waits until no other launch runs, and other launches
/// wait until it has ended. All kernels of one name in this process share one object.
class PoclDlhandleCache : public std::enable_shared_from_this<PoclDlhandleCache> {
 public:
  using Sizes = std::array<std::size_t, 3>;
  /// The widest launch of a program so far, in each dimension, by group size. Guarded by `mutex_`.
  using Widest = std::map<Sizes, Sizes>;

  /// Whether a driver has the bug, by its CL_DEVICE_VERSION and CL_DRIVER_VERSION.
  static bool affects(std::string_view device_version, std::string_view driver_version);
  static bool affects(const opencl::Library& cl, cl_device_id device);

  /// The object that all kernels of this name share.
  static std::shared_ptr<PoclDlhandleCache> of(const std::string& kernel);

  /// Waits until the launch may run, then calls `enqueue`, which creates an event and returns an error code.
  /// `event` may be null.
  template <class Enqueue>
  cl_int run(const opencl::Library& cl, cl_command_queue queue, Widest& widest, const Sizes& global,
             const Sizes& local, cl_event* event, Enqueue enqueue) {
    const bool wider = begin(widest, global, local);
    cl_event own = nullptr;
    if (const cl_int error = enqueue(&own); error != CL_SUCCESS) {
      forget(widest, local);
      end(wider);
      return error;
    }
    end_with(cl, own, wider);
    if (event != nullptr)
      *event = own;
    else
      cl.clReleaseEvent(own);
    // Other launches may wait for this one.
    return cl.clFlush(queue);
  }

 private:
  /// Waits until the launch may run. Returns whether it is wider than all earlier ones.
  bool begin(Widest& widest, const Sizes& global, const Sizes& local);
  /// Forgets the widest launch of this group size, because PoCL refused a launch that begin() counted.
  void forget(Widest& widest, const Sizes& local);
  void end(bool wider);
  /// Calls end() when the event has completed or failed.
  void end_with(const opencl::Library& cl, cl_event event, bool wider);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t running_ = 0;
  /// Whether a wider launch runs or waits.
  bool wider_ = false;
};

}  // namespace kiln::backend::quirks
