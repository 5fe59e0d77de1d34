#include "backend/cuda/event.hpp"

#include <cmath>

#include "base/try.hpp"

namespace kiln::cuda {

Result<Event> make_event(const Context& context) {
  // CU_EVENT_DEFAULT and hipEventDefault: with the time.
  constexpr unsigned timed = 0;
  Handle event = nullptr;
  if (const Status status = context.driver()->event_create(&event, timed); status != status::success)
    return context.driver().error(status, "making an event");
  return Event(event, {&context});
}

Result<EventClock> EventClock::start(const Context& context, Handle stream) {
  auto base = KILN_TRY(make_event(context));
  auto mark = KILN_TRY(make_event(context));
  const Driver& driver = context.driver();
  Status status = driver->event_record(base.get(), stream);
  if (status == status::success) status = driver->stream_wait(stream);
  if (status != status::success) return driver.error(status, "opening a slot");
  return EventClock(driver, std::move(base), std::move(mark));
}

Status EventClock::mark(Handle stream) {
  const Status status = (*driver_)->event_record(mark_.get(), stream);
  marked_ = status == status::success;
  marked_at_ = std::chrono::steady_clock::now();
  return status;
}

bool EventClock::is_due() const noexcept {
  return !marked_ && std::chrono::steady_clock::now() - marked_at_ > std::chrono::seconds(1);
}

void EventClock::move_to_mark() {
  if (!marked_) return;
  marked_ = false;
  const auto time = time_of(mark_);
  if (!time) return;
  time_ = *time;
  std::swap(base_, mark_);
}

std::optional<std::chrono::nanoseconds> EventClock::time_of(const Event& event) const {
  float milliseconds = 0;
  if ((*driver_)->event_elapsed(&milliseconds, base_.get(), event.get()) != status::success) return std::nullopt;
  return time_ + std::chrono::nanoseconds(std::llround(double{milliseconds} * 1e6));
}

}  // namespace kiln::cuda
