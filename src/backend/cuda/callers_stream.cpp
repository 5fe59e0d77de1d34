#include "backend/cuda/callers_stream.hpp"

#include <utility>

#include <fmt/format.h>

#include "backend/cuda/loaded_image.hpp"
#include "backend/cuda/slot.hpp"
#include "backend/held.hpp"
#include "base/try.hpp"

namespace kiln::cuda {
namespace {

/// In the stream's context. True if the driver does not tell.
bool is_captured_now(const Driver& driver, Handle stream) {
  int is_capturing = 0;
  return driver->stream_is_capturing != nullptr &&
         (driver->stream_is_capturing(stream, &is_capturing) != status::success || is_capturing != 0);
}

/// A place in the work of a stream. After an error of the device, all places count as passed.
class Fence {
 public:
  /// Null if the driver makes no event, or if the stream is being captured: an event would be a part of the graph.
  static std::unique_ptr<Fence> in(const Context& context, Handle stream) {
    const Driver& driver = context.driver();
    const Context::ScopedCurrent scope(context);
    const RelaxedCapture relaxed(driver);
    if (scope.status() != status::success || is_captured_now(driver, stream)) return nullptr;
    auto event = make_event(context);
    if (!event || driver->event_record(event->get(), stream) != status::success) return nullptr;
    return std::make_unique<Fence>(context, std::move(*event));
  }
  Fence(const Context& context, Event event) noexcept : context_(context), event_(std::move(event)) {}

  bool passed() const {
    const Context::ScopedCurrent scope(context_);
    const RelaxedCapture relaxed(context_.driver());
    return context_.driver()->event_query(event_.get()) != status::not_ready;
  }
  void wait() const {
    const Context::ScopedCurrent scope(context_);
    const RelaxedCapture relaxed(context_.driver());
    context_.driver()->event_wait(event_.get());
  }

 private:
  const Context& context_;
  const Event event_;
};

class CallersStream final : public kiln::Stream {
 public:
  CallersStream(const Platform& platform, std::shared_ptr<const Context> context, DeviceInfo info, Handle stream)
      : platform_(platform), context_(std::move(context)), info_(std::move(info)), stream_(stream) {}

  Result<void> launch(kiln::Module& module, const Launch& launch) override {
    const auto prepared = KILN_TRY(
        PreparedLaunch::make(platform_.image_of(module), platform_.kernel_of(module), launch, *context_, info_));
    if (!prepared.is_work()) return {};
    const Context::ScopedCurrent scope(*context_);
    Status status = scope.status();
    if (status == status::success) status = prepared.enqueue(stream_);
    if (status == status::success) return {};
    return context_->driver().error(status, fmt::format("launching {}", prepared.name()));
  }
  void hold(std::shared_ptr<const void> thing) override {
    held_.add(Fence::in(*context_, stream_), std::move(thing));
  }
  bool is_captured() const override {
    const Context::ScopedCurrent scope(*context_);
    return scope.status() == status::success && is_captured_now(context_->driver(), stream_);
  }

 private:
  const Platform& platform_;
  const std::shared_ptr<const Context> context_;
  const DeviceInfo info_;
  const Handle stream_;
  backend::Held<Fence> held_;
};

Result<CudaDevice*> device_of(const Platform& platform, Device& device) {
  auto* own = dynamic_cast<CudaDevice*>(&device);
  if (own != nullptr && &own->platform() == &platform) return own;
  return Error(ErrorCode::invalid_request,
               fmt::format("{} is not a device of {}", device.info().name, platform.api));
}

/// Success if the driver knows these bytes. They may lie in several ranges that are mapped one behind the other.
Status find_memory(const Driver& driver, Address address, std::size_t bytes) {
  if (driver->memory_range == nullptr) return status::success;
  while (true) {
    Address base = 0;
    std::size_t size = 0;
    if (const Status status = driver->memory_range(&base, &size, address); status != status::success) return status;
    const std::size_t left = size - static_cast<std::size_t>(address - base);
    if (bytes <= left) return status::success;
    if (left == 0) return status::not_found;
    address += left;
    bytes -= left;
  }
}

}  // namespace

Result<std::unique_ptr<kiln::Stream>> stream_on(const Platform& platform, Device& device, Handle stream) {
  const auto own = KILN_TRY(device_of(platform, device));
  const Context& context = *own->context();
  const Context::ScopedCurrent scope(context);
  if (scope.status() != status::success) return context.driver().error(scope.status(), "using a stream");
  Handle of_stream = nullptr;
  // The default streams belong to whichever context is current.
  const bool is_default = reinterpret_cast<std::uintptr_t>(stream) <= 2;
  if (!is_default && context.driver()->stream_context != nullptr) {
    const Status status = context.driver()->stream_context(stream, &of_stream);
    if (status != status::success) return context.driver().error(status, "reading the context of a stream");
    if (of_stream != context.native())
      return Error(ErrorCode::invalid_request,
                   fmt::format("the stream belongs to another context than {}", device.info().name));
  }
  return std::unique_ptr<kiln::Stream>(
      std::make_unique<CallersStream>(platform, own->context(), device.info(), stream));
}

Result<std::unique_ptr<Buffer>> wrap_memory(const Platform& platform, Device& device, Address address,
                                            std::size_t bytes) {
  const auto own = KILN_TRY(device_of(platform, device));
  const Driver& driver = own->context()->driver();
  const Context::ScopedCurrent scope(*own->context());
  if (scope.status() != status::success) return driver.error(scope.status(), "wrapping memory");
  // CUDA_ERROR_INVALID_VALUE and hipErrorInvalidValue.
  constexpr Status invalid_value = 1;
  const Status found = address != 0 ? find_memory(driver, address, bytes) : invalid_value;
  if (found != status::success && found != invalid_value && found != status::not_found)
    return driver.error(found, "wrapping memory");
  if (found != status::success)
    return Error(ErrorCode::invalid_request, fmt::format("{} bytes at {:#x} are not memory that {} can use", bytes,
                                                         address, device.info().name));
  return std::unique_ptr<Buffer>(
      std::make_unique<CudaBuffer>(own->context(), address, bytes, CudaBuffer::Owner::caller));
}

}  // namespace kiln::cuda
