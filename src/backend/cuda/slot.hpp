#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <kiln/slot.hpp>

#include "backend/clock.hpp"
#include "backend/cuda/device.hpp"
#include "backend/cuda/event.hpp"
#include "backend/cuda/memory.hpp"

namespace kiln::cuda {

/// A slot on CUDA or HIP: a stream for as long as it lives, memory of the host's that the device reads and writes
/// itself, and events around every piece of work.
class CudaSlot final : public Slot {
 public:
  static Result<std::unique_ptr<Slot>> open(const Platform& platform, std::shared_ptr<Context> context,
                                            DeviceInfo info);

  using Stream = backend::Pool<Context::Stream>::Loan;
  /// For open(), which makes it ready.
  CudaSlot(const Platform& platform, std::shared_ptr<Context> context, DeviceInfo info, Stream stream,
           EventClock events) noexcept
      : platform_(platform),
        context_(std::move(context)),
        info_(std::move(info)),
        stream_(std::move(stream)),
        events_(std::move(events)) {}
  ~CudaSlot() override;

  Result<std::span<std::byte>> staging(std::size_t bytes) override;
  Result<void> upload(const Buffer& to, std::size_t offset, std::size_t staged, std::size_t bytes) override;
  Result<void> launch(kiln::Module& module, const Launch& launch) override;
  Result<void> download(const Buffer& from, std::size_t offset, std::size_t staged, std::size_t bytes) override;
  Result<void> submit() override;
  Result<bool> finished() override;
  Result<void> wait() override;
  std::vector<Ran> times() override;

 private:
  using Pinned = std::unique_ptr<void, FreedInContext<&Functions::host_free>>;

  /// What is submitted together.
  struct Batch {
    /// When the first piece was queued, and when all were seen to have ended.
    std::chrono::steady_clock::time_point queued = {};
    std::chrono::steady_clock::time_point seen = {};
    /// Whether each piece was work.
    std::vector<bool> pieces = {};
    /// How many of them were.
    std::size_t work = 0;
    /// The begin and the end of each that was, and some kept for later batches.
    std::vector<Event> events = {};
  };

  /// Has `enqueue` put a piece on the stream; `doing` says what it is, for an error.
  template <class Enqueue, class Doing>
  Result<void> add(Enqueue enqueue, Doing doing);
  /// Notes a piece that is no work.
  Result<void> add_nothing();
  /// Makes the events that the next piece needs, and moves the clock along.
  Result<void> prepare_events();
  Result<const CudaBuffer*> copied(const Buffer& buffer, std::size_t offset, std::size_t staged,
                                   std::size_t bytes) const;
  /// Compares the clocks.
  Result<void> set_clock();
  /// What follows from the stream's status when it has done all.
  Result<void> end(Status status);

  const Platform& platform_;
  const std::shared_ptr<Context> context_;
  const DeviceInfo info_;
  Stream stream_;
  Pinned pinned_;
  /// All of `pinned_`.
  std::span<std::byte> staging_;
  Batch queued_;
  Batch submitted_;
  /// Whether something was submitted and not seen to have ended.
  bool under_way_ = false;
  EventClock events_;
  backend::Clock clock_;
};

}  // namespace kiln::cuda
