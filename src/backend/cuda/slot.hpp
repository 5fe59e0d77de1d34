#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <kiln/result.hpp>
#include <kiln/slot.hpp>

#include "backend/clock.hpp"
#include "backend/cuda/context.hpp"
#include "backend/cuda/device.hpp"
#include "backend/slot_base.hpp"

namespace kiln::cuda {

/// Frees what the driver gave out, with its context current; the context outlives it.
template <Status (*Functions::*Free)(void*)>
struct FreedInContext {
  const Context* context = nullptr;
  void operator()(void* thing) const noexcept {
    const Context::ScopedCurrent scope(*context);
    if (scope.status() == status::success) (context->driver().operator->()->*Free)(thing);
  }
};

/// A point in the work of a stream, with the time when it was reached.
using Event = std::unique_ptr<void, FreedInContext<&Functions::event_destroy>>;
/// Only within a ScopedCurrent.
Result<Event> make_event(const Context& context);

/// The device's time by events of one stream. Drivers tell the time between two events alone, and as a float of
/// milliseconds, which after an hour is good for a quarter of one; so what events are measured from is moved along.
/// All functions are called within a ScopedCurrent.
class EventClock {
 public:
  /// Its zero is a point that the stream has passed on return.
  static Result<EventClock> start(const Context& context, Handle stream);

  /// Notes a new point to measure from on the stream.
  Status mark(Handle stream);
  /// Whether the point measured from is so old that it shows.
  bool is_due() const noexcept;
  /// Measures from the last mark on, which the stream has passed.
  void move_to_mark();

  /// The time of the point measured from.
  std::chrono::nanoseconds base() const noexcept { return time_; }
  /// The time of an event that the stream has passed; nothing where the driver does not tell.
  std::optional<std::chrono::nanoseconds> time_of(const Event& event) const;

 private:
  EventClock(const Driver& driver, Event base, Event mark) noexcept
      : driver_(&driver), base_(std::move(base)), mark_(std::move(mark)) {}

  const Driver* driver_;
  Event base_;
  Event mark_;
  bool marked_ = false;
  std::chrono::steady_clock::time_point marked_at_ = {};
  std::chrono::nanoseconds time_ = {};
};

/// A slot on CUDA or HIP: a stream for as long as it lives, memory of the host's that the device reads and writes
/// itself, and events around every piece of work.
class CudaSlot final : public backend::SlotBase<CudaBuffer, Context> {
 public:
  static Result<std::unique_ptr<Slot>> open(const Platform& platform, std::shared_ptr<Context> context,
                                            DeviceInfo info);

  using Stream = backend::Pool<Context::Stream>::Loan;
  /// For open(), which makes it ready.
  CudaSlot(const Platform& platform, std::shared_ptr<Context> context, DeviceInfo info, Stream stream,
           EventClock events) noexcept
      : SlotBase(*context, std::move(info)),
        platform_(platform),
        context_(std::move(context)),
        stream_(std::move(stream)),
        events_(std::move(events)) {}
  ~CudaSlot() override;

  Result<void> launch(kiln::Module& module, const Launch& launch) override;
  Result<void> submit() override;
  Result<bool> finished() override;
  Result<void> wait() override;
  std::vector<Ran> times() override;

 private:
  using Pinned = std::unique_ptr<void, FreedInContext<&Functions::host_free>>;

  /// Pieces of work that are submitted together.
  struct Submission {
    /// When the first piece was queued, and when all were seen to have ended.
    std::chrono::steady_clock::time_point queued = {};
    std::chrono::steady_clock::time_point seen = {};
    /// Whether each piece was work.
    std::vector<bool> pieces = {};
    /// How many of them were.
    std::size_t work = 0;
    /// The begin and the end of each that was, and some kept for later submissions.
    std::vector<Event> events = {};
  };

  bool in_use() const noexcept override { return !queued_.pieces.empty() || under_way_; }
  Result<std::span<std::byte>> allocate_staging(std::size_t bytes) override;
  Result<void> queue_copy(const Copy& copy) override;
  Result<void> queue_nothing() override;
  /// Has `enqueue` put a piece on the stream; `doing` says what it is, for an error.
  template <class Enqueue, class Doing>
  Result<void> add(Enqueue enqueue, Doing doing);
  /// Makes the events that the next piece needs, and moves the clock along.
  Result<void> prepare_events();
  /// Compares the clocks.
  Result<void> set_clock();
  /// What follows from the stream's status when it has done all.
  Result<void> end(Status status);

  const Platform& platform_;
  const std::shared_ptr<Context> context_;
  Stream stream_;
  Pinned pinned_;
  Submission queued_;
  Submission submitted_;
  /// Whether something was submitted and not seen to have ended.
  bool under_way_ = false;
  EventClock events_;
  backend::Clock clock_;
};

}  // namespace kiln::cuda
