#include "backend/cuda/context.hpp"

#include <fmt/format.h>

#include "backend/launch_checks.hpp"

namespace kiln::cuda {

Context::ScopedCurrent::ScopedCurrent(const Context& context) noexcept
    : driver_(*context.driver_), status_(driver_->context_push(context.native_)) {}

Context::ScopedCurrent::~ScopedCurrent() {
  Handle popped = nullptr;
  if (status_ == status::success) driver_->context_pop(&popped);
}

Result<std::shared_ptr<Context>> Context::primary(std::shared_ptr<const Driver> driver, int device) {
  Handle native = nullptr;
  if (const Status status = (*driver)->context_retain(&native, device); status != status::success)
    return driver->error(status, "creating a context");
  return std::make_shared<Context>(std::move(driver), native, device, true);
}

Result<std::shared_ptr<Context>> Context::adopt(std::shared_ptr<const Driver> driver, Handle context) {
  if (context == nullptr)
    return Error(ErrorCode::invalid_request, fmt::format("the {} context to adopt is null", driver->names().title));
  int device = 0;
  Status status = (*driver)->context_push(context);
  if (status == status::success) {
    status = (*driver)->context_device(&device);
    Handle popped = nullptr;
    (*driver)->context_pop(&popped);
  }
  if (status != status::success) return driver->error(status, "adopting a context");
  return std::make_shared<Context>(std::move(driver), context, device, false);
}

Context::~Context() {
  {
    const ScopedCurrent scope(*this);
    idle_streams_.clear();
  }
  if (owned_) (*driver_)->context_release(device_);
}

Result<backend::Pool<Context::Stream>::Loan> Context::borrow_stream() {
  return idle_streams_.borrow([this]() -> Result<std::unique_ptr<Stream>> {
    // CU_STREAM_NON_BLOCKING and hipStreamNonBlocking: no synchronisation with the caller's default stream.
    constexpr unsigned non_blocking = 1;
    Handle stream = nullptr;
    if (const Status status = (*driver_)->stream_create(&stream, non_blocking); status != status::success)
      return driver_->error(status, "creating a stream");
    return std::make_unique<Stream>(*driver_, stream);
  });
}

Result<std::unique_ptr<Buffer>> CudaBuffer::allocate(std::shared_ptr<Context> context, std::size_t bytes) {
  const Driver& driver = context->driver();
  const Context::ScopedCurrent scope(*context);
  const RelaxedCapture relaxed(driver);
  Address address = 0;
  Status status = scope.status();
  if (status == status::success) status = driver->memory_allocate(&address, backend::allocated_bytes(bytes));
  if (status != status::success) {
    // Drivers return this error for sizes that exceed the address space.
    constexpr Status invalid_value = 1;
    return driver.error(status == invalid_value ? status::out_of_memory : status,
                        fmt::format("allocating {} bytes", bytes));
  }
  return std::unique_ptr<Buffer>(std::make_unique<CudaBuffer>(std::move(context), address, bytes, Owner::kiln));
}

Address CudaBuffer::address_of(const Buffer& buffer, const DriverNames& driver) noexcept {
  const auto* own = dynamic_cast<const CudaBuffer*>(&buffer);
  return own != nullptr && &own->context_->driver().names() == &driver ? own->address_ : 0;
}

CudaBuffer::~CudaBuffer() {
  if (freed_by_ == Owner::caller) return;
  const Context::ScopedCurrent scope(*context_);
  const RelaxedCapture relaxed(context_->driver());
  if (scope.status() == status::success) context_->driver()->memory_free(address_);
}

}  // namespace kiln::cuda
