#include "backend/cuda/slot.hpp"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "backend/cuda/loaded_image.hpp"
#include "backend/launch_checks.hpp"
#include "base/try.hpp"

namespace kiln::cuda {

Result<Event> make_event(const Context& context) {
  // CU_EVENT_DEFAULT and hipEventDefault: with a timestamp.
  constexpr unsigned timed = 0;
  Handle event = nullptr;
  if (const Status status = context.driver()->event_create(&event, timed); status != status::success)
    return context.driver().error(status, "creating an event");
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

Result<std::unique_ptr<Slot>> CudaSlot::open(const Platform& platform, std::shared_ptr<Context> context,
                                             DeviceInfo info) {
  const Context::ScopedCurrent scope(*context);
  if (scope.status() != status::success) return context->driver().error(scope.status(), "opening a slot");
  auto stream = KILN_TRY(context->borrow_stream());
  auto events = EventClock::start(*context, stream->handle());
  if (!events) {
    stream.discard();
    return std::move(events).error();
  }
  auto slot = std::make_unique<CudaSlot>(platform, std::move(context), std::move(info), std::move(stream),
                                         std::move(*events));
  KILN_TRY(slot->set_clock());
  return std::unique_ptr<Slot>(std::move(slot));
}

CudaSlot::~CudaSlot() {
  const Driver& driver = context_->driver();
  const Context::ScopedCurrent scope(*context_);
  Status status = scope.status();
  // Also waits for work that was queued but not submitted: the device has started it.
  if (status == status::success) status = driver->stream_wait(stream_->handle());
  if (status != status::success) stream_.discard();
}

Result<void> CudaSlot::set_clock() {
  const Driver& driver = context_->driver();
  // The first operations of a driver are slow and give loose bounds, so measure several times.
  for (int round = 0; round < 3; ++round) {
    const auto before = std::chrono::steady_clock::now();
    Status status = events_.mark(stream_->handle());
    if (status == status::success) status = driver->stream_wait(stream_->handle());
    if (status != status::success) return driver.error(status, "opening a slot");
    const auto after = std::chrono::steady_clock::now();
    events_.move_to_mark();
    const auto reached = static_cast<std::uint64_t>(events_.base().count());
    clock_.learn(before, reached, reached, after);
  }
  return {};
}

Result<std::span<std::byte>> CudaSlot::allocate_staging(std::size_t bytes) {
  pinned_.reset();
  const Driver& driver = context_->driver();
  const Context::ScopedCurrent scope(*context_);
  void* memory = nullptr;
  Status status = scope.status();
  // No CU_MEMHOSTALLOC_* flags, or hipHostMallocDefault: pinned memory.
  if (status == status::success) status = driver->host_allocate(&memory, bytes, 0);
  if (status != status::success) {
    // Drivers return this error for sizes that exceed the address space.
    constexpr Status invalid_value = 1;
    return driver.error(status == invalid_value ? status::out_of_memory : status,
                        fmt::format("allocating {} bytes of host memory", bytes));
  }
  pinned_ = Pinned(memory, {context_.get()});
  return std::span(static_cast<std::byte*>(memory), bytes);
}

Result<void> CudaSlot::prepare_events() {
  if (events_.is_due())
    if (const Status status = events_.mark(stream_->handle()); status != status::success)
      return context_->driver().error(status, "recording an event");
  while (queued_.events.size() < 2 * (queued_.work + 1)) {
    auto event = KILN_TRY(make_event(*context_));
    queued_.events.push_back(std::move(event));
  }
  return {};
}

template <class Enqueue, class Doing>
Result<void> CudaSlot::add(Enqueue enqueue, Doing doing) {
  const Driver& driver = context_->driver();
  const Handle stream = stream_->handle();
  const Context::ScopedCurrent scope(*context_);
  if (scope.status() != status::success) return driver.error(scope.status(), doing());
  KILN_TRY(prepare_events());
  if (queued_.pieces.empty()) queued_.queued = std::chrono::steady_clock::now();
  Status status = driver->event_record(queued_.events[2 * queued_.work].get(), stream);
  if (status == status::success) status = enqueue(stream);
  if (status == status::success) status = driver->event_record(queued_.events[2 * queued_.work + 1].get(), stream);
  if (status != status::success) return driver.error(status, doing());
  queued_.pieces.push_back(true);
  ++queued_.work;
  return {};
}

Result<void> CudaSlot::queue_nothing() {
  if (queued_.pieces.empty()) queued_.queued = std::chrono::steady_clock::now();
  queued_.pieces.push_back(false);
  return {};
}

Result<void> CudaSlot::queue_copy(const Copy& copy) {
  const Driver& driver = context_->driver();
  const Address address = copy.buffer.address() + copy.offset;
  std::byte* const host = staged().data() + copy.staged;
  return add(
      [&](Handle stream) {
        return copy.direction == Direction::upload ? driver->copy_to_device(address, host, copy.bytes, stream)
                                                   : driver->copy_to_host(host, address, copy.bytes, stream);
      },
      [&] { return copy.describe(); });
}

Result<void> CudaSlot::launch(kiln::Module& module, const Launch& launch) {
  const auto prepared = KILN_TRY(
      PreparedLaunch::make(platform_.image_of(module), platform_.kernel_of(module), launch, *context_, device_));
  if (!prepared.is_work()) return queue_nothing();
  return add([&](Handle stream) { return prepared.enqueue(stream); },
             [&] { return fmt::format("launching {}", prepared.name()); });
}

Result<void> CudaSlot::submit() {
  // Drivers start work when it is queued, so there is nothing to flush.
  std::swap(submitted_, queued_);
  queued_.pieces.clear();
  queued_.work = 0;
  under_way_ = under_way_ || submitted_.work > 0;
  return {};
}

Result<bool> CudaSlot::finished() {
  if (!under_way_) return true;
  const Context::ScopedCurrent scope(*context_);
  Status status = scope.status();
  if (status == status::success) status = context_->driver()->stream_query(stream_->handle());
  if (status == status::not_ready) return false;
  KILN_TRY(end(status));
  return true;
}

Result<void> CudaSlot::wait() {
  if (!under_way_) return {};
  const Context::ScopedCurrent scope(*context_);
  Status status = scope.status();
  if (status == status::success) status = context_->driver()->stream_wait(stream_->handle());
  return end(status);
}

Result<void> CudaSlot::end(Status status) {
  submitted_.seen = std::chrono::steady_clock::now();
  if (status != status::success) return context_->driver().error(status, "running submitted work");
  under_way_ = false;
  events_.move_to_mark();
  return {};
}

std::vector<Ran> CudaSlot::times() {
  const Context::ScopedCurrent scope(*context_);
  std::vector<std::optional<backend::Ticks>> ticks;
  auto event = submitted_.events.begin();
  for (const bool work : submitted_.pieces) {
    ticks.emplace_back();
    if (!work) continue;
    const auto begin = events_.time_of(*event++);
    const auto end = events_.time_of(*event++);
    if (!begin || !end) return {};
    ticks.back() = {*begin, *end};
  }
  return clock_.place(ticks, submitted_.queued, submitted_.seen);
}

}  // namespace kiln::cuda
