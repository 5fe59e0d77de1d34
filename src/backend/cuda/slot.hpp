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

/// Frees a resource of the driver with its context current. The context must outlive the resource.
template <Status (*Functions::*Free)(void*)>
struct FreedInContext {
  const Context* context = nullptr;
  void operator()(void* thing) const noexcept {
    const Context::ScopedCurrent scope(*context);
    if (scope.status() == status::success) (context->driver().operator->()->*Free)(thing);
  }
};

/// A point in the work of a stream, with the time at which the device reached it.
using Event = std::unique_ptr<void, FreedInContext<&Functions::event_destroy>>;
/// Call it within a ScopedCurrent.
Result<Event> make_event(const Context& context);

/// Device time, measured by the events of one stream. Drivers report only the time between two events, as a float
/// of milliseconds, whose resolution is a quarter of a millisecond after an hour. So the base event, from which
/// others are measured, is replaced regularly. Call all functions within a ScopedCurrent.
class EventClock {
 public:
  /// Time 0 is a point that the stream has passed on return.
  static Result<EventClock> start(const Context& context, Handle stream);

  /// Records the next base event on the stream.
  Status mark(Handle stream);
  /// Whether the last mark() is more than a second ago, and no mark is pending.
  bool is_due() const noexcept;
  /// Makes the last mark the base event. The stream must have passed it.
  void move_to_mark();

  /// The time of the base event.
  std::chrono::nanoseconds base() const noexcept { return time_; }
  /// The time of an event that the stream has passed; nullopt if the driver does not report it.
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

/// A slot on CUDA or HIP: a stream, pinned host memory that the device accesses directly, and events around every
/// piece of work.
class CudaSlot final : public backend::SlotBase<CudaBuffer, Context> {
 public:
  static Result<std::unique_ptr<Slot>> open(const Platform& platform, std::shared_ptr<Context> context,
                                            DeviceInfo info);

  using Stream = backend::Pool<Context::Stream>::Loan;
  /// For open(), which also sets the clock.
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
    /// When the host queued the first piece, and when it saw the end of all pieces.
    std::chrono::steady_clock::time_point queued = {};
    std::chrono::steady_clock::time_point seen = {};
    /// One entry per piece: false if it is empty.
    std::vector<bool> pieces = {};
    /// The number of pieces that are not empty.
    std::size_t work = 0;
    /// The begin and the end of each piece that is not empty, and unused events from earlier submissions.
    std::vector<Event> events = {};
  };

  bool in_use() const noexcept override { return !queued_.pieces.empty() || under_way_; }
  Result<std::span<std::byte>> allocate_staging(std::size_t bytes) override;
  Result<void> queue_copy(const Copy& copy) override;
  Result<void> queue_nothing() override;
  /// Calls `enqueue` to queue a piece on the stream. `doing` returns the name of the operation, for errors.
  template <class Enqueue, class Doing>
  Result<void> add(Enqueue enqueue, Doing doing);
  /// Makes the events for the next piece, and marks a new base event if it is due.
  Result<void> prepare_events();
  /// Estimates the offset between the clocks of the device and the host.
  Result<void> set_clock();
  /// Ends the submission with the final status of the stream.
  Result<void> end(Status status);

  const Platform& platform_;
  const std::shared_ptr<Context> context_;
  Stream stream_;
  Pinned pinned_;
  Submission queued_;
  Submission submitted_;
  /// Whether submitted work has not been seen to end.
  bool under_way_ = false;
  EventClock events_;
  backend::Clock clock_;
};

}  // namespace kiln::cuda
