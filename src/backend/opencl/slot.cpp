#include "backend/opencl/slot.hpp"

#include <utility>

#include <fmt/format.h>

#include "backend/launch_checks.hpp"
#include "backend/opencl/program.hpp"
#include "base/try.hpp"

namespace kiln::opencl {
namespace {

constexpr const char* running = "running submitted work";

}  // namespace

Result<std::unique_ptr<Slot>> ClSlot::open(std::shared_ptr<const Context> context, DeviceInfo info) {
  auto queue = KILN_TRY(Queue::open(context, CL_QUEUE_PROFILING_ENABLE));
  auto slot = std::make_unique<ClSlot>(std::move(context), std::move(info), std::move(queue));
  KILN_TRY(slot->set_clock());
  return std::unique_ptr<Slot>(std::move(slot));
}

ClSlot::~ClSlot() {
  unmap();
  // Also waits for work that was queued but not submitted: the driver may have started it.
  context_->cl().clFinish(queue_->get());
}

Result<void> ClSlot::set_clock() {
  auto word = KILN_TRY(ClBuffer::allocate(context_, sizeof(cl_uint), CL_MEM_READ_WRITE));
  static constexpr cl_uint value = 0;
  // The first operations of a driver are slow and give loose bounds, so measure several times.
  for (int round = 0; round < 3; ++round) {
    auto added = add(
        [&](cl_event* event) {
          return context_->cl().clEnqueueWriteBuffer(queue_->get(), word->memory(), CL_FALSE, 0, sizeof value,
                                                     &value, 0, nullptr, event);
        },
        [] { return "opening a slot"; });
    if (!added) return added;
    KILN_TRY(submit());
    KILN_TRY(wait());
    times();
  }
  submitted_ = {};
  return {};
}

Result<std::span<std::byte>> ClSlot::allocate_staging(std::size_t bytes) {
  unmap();
  auto pinned = KILN_TRY(ClBuffer::allocate(context_, bytes, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR));
  cl_int error = CL_SUCCESS;
  void* mapped = context_->cl().clEnqueueMapBuffer(
      queue_->get(), pinned->memory(), CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, bytes, 0, nullptr, nullptr, &error);
  if (mapped == nullptr) return cl_error(error, fmt::format("mapping {} bytes", bytes));
  pinned_ = std::move(pinned);
  mapped_ = mapped;
  return std::span(static_cast<std::byte*>(mapped), bytes);
}

void ClSlot::unmap() {
  if (pinned_ == nullptr) return;
  context_->cl().clEnqueueUnmapMemObject(queue_->get(), pinned_->memory(), mapped_, 0, nullptr, nullptr);
  pinned_.reset();
}

template <class Enqueue, class Doing>
Result<void> ClSlot::add(Enqueue enqueue, Doing doing) {
  const auto now = std::chrono::steady_clock::now();
  cl_event event = nullptr;
  if (const cl_int error = enqueue(&event); error != CL_SUCCESS) return cl_error(error, doing());
  if (queued_.pieces.empty()) queued_.queued = now;
  queued_.pieces.push_back(
      Event(event, [context = context_](cl_event ended) { context->cl().clReleaseEvent(ended); }));
  return {};
}

Result<void> ClSlot::queue_nothing() {
  if (queued_.pieces.empty()) queued_.queued = std::chrono::steady_clock::now();
  queued_.pieces.emplace_back();
  return {};
}

Result<void> ClSlot::queue_copy(const Copy& copy) {
  const Library& cl = context_->cl();
  const cl_mem memory = copy.buffer.memory();
  std::byte* const host = staged().data() + copy.staged;
  return add(
      [&](cl_event* event) {
        return copy.direction == Direction::upload
                   ? cl.clEnqueueWriteBuffer(queue_->get(), memory, CL_FALSE, copy.offset, copy.bytes, host, 0,
                                             nullptr, event)
                   : cl.clEnqueueReadBuffer(queue_->get(), memory, CL_FALSE, copy.offset, copy.bytes, host, 0,
                                            nullptr, event);
      },
      [&] { return copy.describe(); });
}

Result<void> ClSlot::launch(kiln::Module& module, const Launch& launch) {
  const auto prepared = KILN_TRY(PreparedLaunch::make(module, launch, *context_, device_));
  if (!prepared.is_work()) return queue_nothing();
  return add([&](cl_event* event) { return prepared.enqueue(queue_->get(), event); },
             [&] { return fmt::format("launching {}", prepared.name()); });
}

Result<void> ClSlot::submit() {
  submitted_ = std::exchange(queued_, {});
  for (const Event& piece : submitted_.pieces)
    if (piece != nullptr) last_ = piece;
  if (last_ == nullptr) return {};
  if (const cl_int error = context_->cl().clFlush(queue_->get()); error != CL_SUCCESS)
    return cl_error(error, "submitting work");
  return {};
}

Result<bool> ClSlot::finished() {
  if (last_ != nullptr && state_of(last_) > CL_COMPLETE) return false;
  // The status does not make the writes of the work visible to the host. A wait does, and returns soon.
  KILN_TRY(wait());
  return true;
}

Result<void> ClSlot::wait() {
  if (last_ == nullptr) return {};
  const cl_event last = last_.get();
  const cl_int error = context_->cl().clWaitForEvents(1, &last);
  submitted_.seen = std::chrono::steady_clock::now();
  // The wait reports only that something failed, and may miss failures of pieces before the last.
  for (const Event& piece : submitted_.pieces)
    if (const cl_int state = state_of(piece); state < 0) return cl_error(state, running);
  if (error != CL_SUCCESS) return cl_error(error, running);
  last_.reset();
  return {};
}

cl_int ClSlot::state_of(const Event& piece) const {
  if (piece == nullptr) return CL_COMPLETE;
  cl_int state = CL_QUEUED;
  const cl_int error =
      context_->cl().clGetEventInfo(piece.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr);
  return error != CL_SUCCESS ? error : state;
}

std::optional<backend::Ticks> ClSlot::ticks_of(const Event& piece) const {
  const auto time = [&](cl_profiling_info what) -> std::optional<std::chrono::nanoseconds> {
    cl_ulong ticks = 0;
    if (context_->cl().clGetEventProfilingInfo(piece.get(), what, sizeof ticks, &ticks, nullptr) != CL_SUCCESS)
      return std::nullopt;
    return std::chrono::nanoseconds(ticks);
  };
  const auto begin = time(CL_PROFILING_COMMAND_START);
  const auto end = time(CL_PROFILING_COMMAND_END);
  if (!begin || !end) return std::nullopt;
  return backend::Ticks{*begin, *end};
}

std::vector<Ran> ClSlot::times() {
  std::vector<std::optional<backend::Ticks>> ticks;
  for (const Event& piece : submitted_.pieces) {
    ticks.push_back(piece != nullptr ? ticks_of(piece) : std::nullopt);
    if (piece != nullptr && !ticks.back()) return {};
  }
  return clock_.place(ticks, submitted_.queued, submitted_.seen);
}

}  // namespace kiln::opencl
