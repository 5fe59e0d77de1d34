#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "backend/opencl/library.hpp"

namespace kiln::opencl {

/// The launches, in this process, of all kernels of one name on PoCL, which has a record of a kernel for each
/// launch that is wider than those before, takes one's record for another's while both run, and then aborts. So a
/// launch that is wider waits until no other one runs, and the others until it has ended.
class PoclLaunches : public std::enable_shared_from_this<PoclLaunches> {
 public:
  using Sizes = std::array<std::size_t, 3>;
  /// How wide the widest launches of a program were, in each direction, for each size of its groups. It is used
  /// with the lock of PoclLaunches.
  using Widest = std::map<Sizes, Sizes>;

  /// Those of kernels of that name.
  static std::shared_ptr<PoclLaunches> of(const std::string& kernel);

  /// Has `enqueue` queue a launch when its time has come; it returns what the driver does, and gives an event.
  template <class Enqueue>
  cl_int run(const Library& cl, cl_command_queue queue, Widest& widest, const Sizes& global, const Sizes& local,
             cl_event* event, Enqueue enqueue) {
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
  /// Waits until a launch may run; whether it is one that is wider.
  bool begin(Widest& widest, const Sizes& global, const Sizes& local);
  /// For a launch that PoCL has no record of.
  void forget(Widest& widest, const Sizes& local);
  void end(bool wider);
  /// Calls end() when an event has come, or failed to.
  void end_with(const Library& cl, cl_event event, bool wider);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t running_ = 0;
  /// Whether one that is wider runs, or is the next to.
  bool wider_ = false;
};

}  // namespace kiln::opencl
