#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include <kiln/slot.hpp>

#include "backend/clock.hpp"
#include "backend/opencl/memory.hpp"
#include "backend/slot_base.hpp"

namespace kiln::opencl {

/// A slot on OpenCL: a queue with profiling, and a buffer in host memory that stays mapped. Drivers copy from and
/// to memory that they have allocated without an intermediate copy.
class ClSlot final : public backend::SlotBase<ClBuffer, Context> {
 public:
  static Result<std::unique_ptr<Slot>> open(std::shared_ptr<const Context> context, DeviceInfo info);

  /// For open(), which also sets the clock.
  ClSlot(std::shared_ptr<const Context> context, DeviceInfo info, std::unique_ptr<Queue> queue) noexcept
      : SlotBase(*context, std::move(info)), context_(std::move(context)), queue_(std::move(queue)) {}
  ~ClSlot() override;

  Result<void> launch(kiln::Module& module, const Launch& launch) override;
  Result<void> submit() override;
  Result<bool> finished() override;
  Result<void> wait() override;
  std::vector<Ran> times() override;

 private:
  using Event = std::shared_ptr<std::remove_pointer_t<cl_event>>;

  /// Pieces of work that are submitted together.
  struct Submission {
    /// When the host queued the first piece, and when it saw the end of all pieces.
    std::chrono::steady_clock::time_point queued = {};
    std::chrono::steady_clock::time_point seen = {};
    /// The event of each piece; null if the piece is empty.
    std::vector<Event> pieces = {};
  };

  bool in_use() const noexcept override { return !queued_.pieces.empty() || last_ != nullptr; }
  Result<std::span<std::byte>> allocate_staging(std::size_t bytes) override;
  Result<void> queue_copy(const Copy& copy) override;
  Result<void> queue_nothing() override;
  /// Calls `enqueue` to queue a piece and make its event. `doing` returns the name of the operation, for errors.
  template <class Enqueue, class Doing>
  Result<void> add(Enqueue enqueue, Doing doing);
  /// Estimates the offset between the clocks of the device and the host, by short writes.
  Result<void> set_clock();
  /// The execution status of a piece, or the error of the query. Errors are negative.
  cl_int state_of(const Event& piece) const;
  std::optional<backend::Ticks> ticks_of(const Event& piece) const;
  void unmap();

  const std::shared_ptr<const Context> context_;
  const std::unique_ptr<Queue> queue_;
  /// The staging memory, which stays mapped.
  std::unique_ptr<ClBuffer> pinned_;
  void* mapped_ = nullptr;
  Submission queued_;
  Submission submitted_;
  /// The last submitted piece of work; null once its end has been seen.
  Event last_;
  backend::Clock clock_;
};

}  // namespace kiln::opencl
