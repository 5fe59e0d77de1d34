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

/// PoCL before 7.0 keeps a compiled variant of a kernel for each launch that is wider than the ones before. When a
/// launch ends, PoCL releases a variant that it looks up again by the launch's sizes. It may find the variant of
/// another launch that still runs, and then aborts in pocl_release_dlhandle_cache().
///
/// Fixed in 7.0: https://github.com/pocl/pocl/commit/c9ac4c0c3f1635c6e00a9cc304ddce87bb7744a2.
///
/// One object for all kernels of a name in this process. A launch that is wider than those before it waits until no
/// other runs, and others wait until it has ended.
class PoclDlhandleCache : public std::enable_shared_from_this<PoclDlhandleCache> {
 public:
  using Sizes = std::array<std::size_t, 3>;
  /// The widest launch of a program so far, in each dimension, for each group size. Guarded by the mutex of this
  /// class.
  using Widest = std::map<Sizes, Sizes>;

  /// Whether a driver has the bug, by its CL_DEVICE_VERSION and CL_DRIVER_VERSION.
  static bool affects(std::string_view device_version, std::string_view driver_version);
  static bool affects(const opencl::Library& cl, cl_device_id device);

  /// The object of the kernels of this name.
  static std::shared_ptr<PoclDlhandleCache> of(const std::string& kernel);

  /// Waits until a launch may run and calls `enqueue`, which returns an error code and makes an event.
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
    // Others may wait for it.
    return cl.clFlush(queue);
  }

 private:
  /// Waits until a launch may run. Returns whether it is wider than those before.
  bool begin(Widest& widest, const Sizes& global, const Sizes& local);
  /// Undoes begin() for a launch that PoCL refused.
  void forget(Widest& widest, const Sizes& local);
  void end(bool wider);
  /// Calls end() when the event is complete or has failed.
  void end_with(const opencl::Library& cl, cl_event event, bool wider);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t running_ = 0;
  /// Whether a wider launch runs or waits.
  bool wider_ = false;
};

}  // namespace kiln::backend::quirks
