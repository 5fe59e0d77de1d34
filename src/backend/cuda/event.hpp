#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include <kiln/result.hpp>

#include "backend/cuda/context.hpp"

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

}  // namespace kiln::cuda
