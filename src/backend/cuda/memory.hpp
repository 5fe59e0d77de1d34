#pragma once

#include <memory>

#include <kiln/device.hpp>

#include "backend/cuda/context.hpp"

namespace kiln::cuda {

/// Memory in a context.
class CudaBuffer final : public Buffer {
 public:
  static Result<std::unique_ptr<Buffer>> allocate(std::shared_ptr<Context> context, std::size_t bytes);

  /// The address of a buffer of that driver's; 0 for others.
  static Address address_of(const Buffer& buffer, const DriverNames& driver) noexcept;

  CudaBuffer(std::shared_ptr<Context> context, Address address, std::size_t size) noexcept
      : context_(std::move(context)), address_(address), size_(size) {}
  ~CudaBuffer() override;

  std::size_t size() const noexcept override { return size_; }
  Address address() const noexcept { return address_; }
  const Context* owner() const noexcept { return context_.get(); }

 private:
  std::shared_ptr<Context> context_;
  Address address_;
  std::size_t size_;
};

}  // namespace kiln::cuda
