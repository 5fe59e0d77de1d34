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

/// A slot on OpenCL: a queue of its own whose commands the driver times, and a buffer of the host's memory that
/// stays mapped. Drivers copy from and to memory they have allocated themselves without a copy in between.
class ClSlot final : public backend::SlotBase<ClBuffer, Context> {
 public:
  static Result<std::unique_ptr<Slot>> open(std::shared_ptr<const Context> context, DeviceInfo info);

  /// For open(), which makes it ready.
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
    /// When the first piece was queued, and when all were seen to have ended.
    std::chrono::steady_clock::time_point queued = {};
    std::chrono::steady_clock::time_point seen = {};
    /// Null for a piece that was no work.
    std::vector<Event> pieces = {};
  };

  bool in_use() const noexcept override { return !queued_.pieces.empty() || last_ != nullptr; }
  Result<std::span<std::byte>> allocate_staging(std::size_t bytes) override;
  Result<void> queue_copy(const Copy& copy) override;
  Result<void> queue_nothing() override;
  /// Has `enqueue` queue a piece and make its event; `doing` says what it is, for an error.
  template <class Enqueue, class Doing>
  Result<void> add(Enqueue enqueue, Doing doing);
  /// Compares the clocks by work of the shortest kind.
  Result<void> set_clock();
  /// The execution status of a piece, or the error of asking for it; both are negative for errors.
  cl_int state_of(const Event& piece) const;
  std::optional<backend::Ticks> ticks_of(const Event& piece) const;
  void unmap();

  const std::shared_ptr<const Context> context_;
  const std::unique_ptr<Queue> queue_;
  /// The staging memory, mapped.
  std::unique_ptr<ClBuffer> pinned_;
  void* mapped_ = nullptr;
  Submission queued_;
  Submission submitted_;
  /// The last piece of those submitted, until it is seen to have ended.
  Event last_;
  backend::Clock clock_;
};

}  // namespace kiln::opencl
