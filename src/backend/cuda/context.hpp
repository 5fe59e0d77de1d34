#pragma once

#include <memory>

#include <kiln/device.hpp>
#include <kiln/result.hpp>

#include "backend/cuda/driver.hpp"
#include "backend/pool.hpp"

namespace kiln::cuda {

/// A context of a device and a pool of its streams. Thread-safe.
class Context {
 public:
  /// Owns a stream. Used by one thread at a time. The destructor requires that the context is current.
  class Stream {
   public:
    Stream(const Driver& driver, Handle stream) noexcept : driver_(driver), stream_(stream) {}
    ~Stream() { driver_->stream_destroy(stream_); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    Handle handle() const noexcept { return stream_; }

   private:
    const Driver& driver_;
    Handle stream_;
  };

  /// Makes the context current on this thread, and restores the previous context on destruction.
  class ScopedCurrent {
   public:
    explicit ScopedCurrent(const Context& context) noexcept;
    ~ScopedCurrent();
    ScopedCurrent(const ScopedCurrent&) = delete;
    ScopedCurrent& operator=(const ScopedCurrent&) = delete;

    Status status() const noexcept { return status_; }

   private:
    const Driver& driver_;
    Status status_;
  };

  /// The primary context of a device, which all libraries of a process share.
  static Result<std::shared_ptr<Context>> primary(std::shared_ptr<const Driver> driver, int device);
  /// Uses the caller's context, which must outlive this object.
  static Result<std::shared_ptr<Context>> adopt(std::shared_ptr<const Driver> driver, Handle context);

  Context(std::shared_ptr<const Driver> driver, Handle native, int device, bool owned)
      : driver_(std::move(driver)), native_(native), device_(device), owned_(owned) {
    base::expect_process_end();
  }
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Driver& driver() const noexcept { return *driver_; }
  Handle native() const noexcept { return native_; }
  int device() const noexcept { return device_; }
  /// Lends a stream to this thread. Call it within a ScopedCurrent.
  Result<backend::Pool<Stream>::Loan> borrow_stream();

 private:
  const std::shared_ptr<const Driver> driver_;
  const Handle native_;
  const int device_;
  const bool owned_;
  backend::Pool<Stream> idle_streams_;
};

/// Allows calls on this thread that allocate or free memory, load or unload code, or query events, while some
/// stream is captured into a graph. Without it, the driver refuses them and ends the capture.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver) noexcept : driver_(driver) { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void exchange() noexcept {
    if (driver_->exchange_capture_mode != nullptr) driver_->exchange_capture_mode(&mode_);
  }

  const Driver& driver_;
  /// CU_STREAM_CAPTURE_MODE_RELAXED; then the thread's own mode.
  int mode_ = 2;
};

/// Device memory of a context.
class CudaBuffer final : public Buffer {
 public:
  static Result<std::unique_ptr<Buffer>> allocate(std::shared_ptr<Context> context, std::size_t bytes);

  /// The address of a buffer of this driver; 0 for other buffers.
  static Address address_of(const Buffer& buffer, const DriverNames& driver) noexcept;

  /// Who frees the memory.
  enum class Owner { kiln, caller };
  CudaBuffer(std::shared_ptr<Context> context, Address address, std::size_t size, Owner freed_by) noexcept
      : context_(std::move(context)), address_(address), size_(size), freed_by_(freed_by) {}
  ~CudaBuffer() override;

  std::size_t size() const noexcept override { return size_; }
  Address address() const noexcept { return address_; }
  const Context* owner() const noexcept { return context_.get(); }

 private:
  std::shared_ptr<Context> context_;
  Address address_;
  std::size_t size_;
  Owner freed_by_;
};

}  // namespace kiln::cuda
