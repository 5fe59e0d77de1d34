#include "backend/cuda/memory.hpp"

#include <fmt/format.h>

#include "backend/launch_checks.hpp"

namespace kiln::cuda {

Result<std::unique_ptr<Buffer>> CudaBuffer::allocate(std::shared_ptr<Context> context, std::size_t bytes) {
  const Driver& driver = context->driver();
  const Context::ScopedCurrent scope(*context);
  Address address = 0;
  Status status = scope.status();
  if (status == status::success) status = driver->memory_allocate(&address, backend::allocated_bytes(bytes));
  if (status != status::success) {
    // Sizes that no address space holds are refused as invalid.
    constexpr Status invalid_value = 1;
    return driver.error(status == invalid_value ? status::out_of_memory : status,
                        fmt::format("allocating {} bytes", bytes));
  }
  return std::unique_ptr<Buffer>(std::make_unique<CudaBuffer>(std::move(context), address, bytes));
}

Address CudaBuffer::address_of(const Buffer& buffer, const DriverNames& driver) noexcept {
  const auto* own = dynamic_cast<const CudaBuffer*>(&buffer);
  return own != nullptr && &own->context_->driver().names() == &driver ? own->address_ : 0;
}

CudaBuffer::~CudaBuffer() {
  const Context::ScopedCurrent scope(*context_);
  if (scope.status() == status::success) context_->driver()->memory_free(address_);
}

}  // namespace kiln::cuda
