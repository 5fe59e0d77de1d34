#pragma once

#include <cstddef>
#include <memory>

#include <kiln/device.hpp>

#include "backend/opencl/program.hpp"

namespace kiln::opencl {

/// Owns a memory object of a context.
class ClBuffer final : public Buffer {
 public:
  /// `flags` are for clCreateBuffer, as in CL_MEM_READ_WRITE.
  static Result<std::unique_ptr<ClBuffer>> allocate(std::shared_ptr<const Context> context, std::size_t bytes,
                                                    cl_mem_flags flags);

  ClBuffer(std::shared_ptr<const Context> context, cl_mem memory, std::size_t size) noexcept
      : context_(std::move(context)), memory_(memory), size_(size) {}
  ~ClBuffer() override { context_->cl().clReleaseMemObject(memory_); }

  std::size_t size() const noexcept override { return size_; }
  cl_mem memory() const noexcept { return memory_; }
  const Context* owner() const noexcept { return context_.get(); }

 private:
  std::shared_ptr<const Context> context_;
  cl_mem memory_;
  std::size_t size_;
};

/// An in-order command queue. Used by one thread at a time.
class Queue {
 public:
  /// `properties` are for clCreateCommandQueue, as in CL_QUEUE_PROFILING_ENABLE.
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
