#pragma once

#include <memory>

#include <kiln/device.hpp>

#include "backend/cuda/context.hpp"

namespace kiln::cuda {

/// Memory in a context.
class CudaBuffer final : public Buffer {
 public:
  static Result<std::unique_ptr<Buffer>> allocate(std::shared_ptr<Context> context, std::size_t bytes);
  /// `buffer` as one of this context's that has `bytes` bytes at `offset`: where those are.
  static Result<Address> address_in(const Context& context, const Buffer& buffer, std::size_t bytes,
                                    std::size_t offset);

  CudaBuffer(std::shared_ptr<Context> context, Address address, std::size_t size) noexcept
      : context_(std::move(context)), address_(address), size_(size) {}
  ~CudaBuffer() override;

  std::size_t size() const noexcept override { return size_; }

 private:
  std::shared_ptr<Context> context_;
  Address address_;
  std::size_t size_;
};

}  // namespace kiln::cuda
