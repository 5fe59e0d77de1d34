#pragma once

#include <memory>

#include "backend/opencl/program.hpp"

namespace kiln::opencl {

/// A command queue, one thread's at a time, that does things in order.
class Queue {
 public:
  /// `properties` are clCreateCommandQueue's, as in CL_QUEUE_PROFILING_ENABLE.
  static Result<std::unique_ptr<Queue>> open(std::shared_ptr<const Context> context,
                                             cl_command_queue_properties properties);

  Queue(std::shared_ptr<const Context> context, cl_command_queue queue) noexcept
      : context_(std::move(context)), queue_(queue) {}
  ~Queue() { context_->cl().clReleaseCommandQueue(queue_); }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  cl_command_queue get() const noexcept { return queue_; }

 private:
  std::shared_ptr<const Context> context_;
  cl_command_queue queue_;
};

}  // namespace kiln::opencl
