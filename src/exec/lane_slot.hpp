#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <kiln/device.hpp>
#include <kiln/slot.hpp>

#include "exec/scheduler.hpp"

namespace kiln::exec {

/// Keeps an object until the process ends, because a device that does not respond may still use it. Destroying it
/// would block on the device, or free memory that the device uses.
void abandon(std::shared_ptr<const void> thing);

/// The buffers that a slot lends to its jobs. Keeps them for later jobs, so that similar jobs allocate nothing.
class SlotMemory {
 public:
  explicit SlotMemory(Device& device) noexcept : device_(device) {}

  /// A buffer of at least this size.
  Result<std::unique_ptr<Buffer>> take(std::size_t bytes);
  /// Keeps the buffer for later jobs, and frees buffers that were idle for long.
  void give_back(std::unique_ptr<Buffer> buffer);
  /// Frees all idle buffers; returns whether there were any.
  bool clear() noexcept;

 private:
  struct Idle {
    std::unique_ptr<Buffer> buffer;
    std::uint64_t used;
  };

  Device& device_;
  std::uint64_t uses_ = 0;
  std::vector<Idle> idle_;
};

/// One of the three slots of a lane, and the job in flight in it.
class LaneSlot {
 public:
  /// `track` is the slot's track number in a trace.
  LaneSlot(Scheduler& scheduler, LaneState& lane, unsigned track)
      : scheduler_(scheduler), lane_(lane), track_(track), memory_(scheduler.device()) {}

  ~LaneSlot() { close(); }
  LaneSlot(const LaneSlot&) = delete;
  LaneSlot& operator=(const LaneSlot&) = delete;

  /// Opens the device's slot unless it is open.
  Result<void> open();
  /// Submits a job to the device. After an error, no part of the job is in flight.
  Result<void> begin(std::shared_ptr<JobState> job);
  /// Whether a job whose begin() failed can be retried, because it has not touched the caller's buffers.
  bool may_begin_again() const noexcept { return !touched_; }
  bool busy() const noexcept { return job_ != nullptr; }
  /// Whether the job has timed out but the device has not finished it.
  bool overdue() const noexcept { return left_at_.has_value(); }
  /// Polls the job. Ends it if the device has finished it; abandons it to the device if it is overdue for too long.
  enum class Look { under_way, ended, abandoned };
  Look look();
  /// Frees idle device memory.
  void reclaim() noexcept { memory_.clear(); }

 private:
  /// A copy between a job's memory and the staging memory.
  struct Copy {
    std::size_t memory;
    std::size_t staged;
    std::size_t bytes;
  };

  Result<void> hand_over(JobState& job);
  Result<void> lend(const Job& job);
  Result<void> fill(JobState& job);
  Result<void> queue(const JobState& job);
  Result<void> drain(const Job& job);
  JobReport report(const JobState& job);
  void trace(const JobState& job, const std::vector<Ran>& times) const;
  /// Returns lent buffers to memory_; the device must not use them any more.
  void give_back();
  /// Closes the device's slot, which waits for the device.
  void close();
  /// Leaks the slot and everything it uses, because the device may still be working on it.
  void abandon();

  Scheduler& scheduler_;
  LaneState& lane_;
  const unsigned track_;
  SlotMemory memory_;
  std::unique_ptr<Slot> slot_;

  std::shared_ptr<JobState> job_;
  bool touched_ = false;
  /// When to abandon the job; set while it is overdue.
  std::optional<Clock::time_point> left_at_;
  /// The buffers of the job's memory, in order; and the lent ones among them.
  std::vector<const Buffer*> buffers_;
  std::vector<std::unique_ptr<Buffer>> lent_;
  std::span<std::byte> staged_;
  std::vector<Copy> uploads_;
  std::vector<Copy> downloads_;
};

}  // namespace kiln::exec
