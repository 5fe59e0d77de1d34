#pragma once

#include <cstddef>
#include <memory>

#include <kiln/device.hpp>

#include "backend/opencl/program.hpp"

namespace kiln::opencl {

/// Memory in a context.
class ClBuffer final : public Buffer {
 public:
  /// `flags` are clCreateBuffer's, as in CL_MEM_READ_WRITE.
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

}  // namespace kiln::opencl
