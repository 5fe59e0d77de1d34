#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <kiln/device.hpp>
#include <kiln/slot.hpp>

#include "exec/scheduler.hpp"

namespace kiln::exec {

/// Keeps something until the process ends: what a device that does not answer may be at work on. To destroy it
/// would wait for the device, or take memory away from under it.
void abandon(std::shared_ptr<const void> thing);

/// The buffers that a slot lends to its jobs, kept for the next ones. Jobs that are alike allocate nothing.
class SlotMemory {
 public:
  explicit SlotMemory(Device& device) noexcept : device_(device) {}

  /// A buffer of at least so many bytes.
  Result<std::unique_ptr<Buffer>> take(std::size_t bytes);
  /// Keeps it for later, and drops what has not been taken for long.
  void give_back(std::unique_ptr<Buffer> buffer);
  /// Drops all that is not lent; whether there was anything.
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

/// One of the three slots of a lane, and the job that is under way in it.
class LaneSlot {
 public:
  /// `track` is its number in a trace.
  LaneSlot(Scheduler& scheduler, LaneState& lane, unsigned track)
      : scheduler_(scheduler), lane_(lane), track_(track), memory_(scheduler.device()) {}

  ~LaneSlot() { close(); }
  LaneSlot(const LaneSlot&) = delete;
  LaneSlot& operator=(const LaneSlot&) = delete;

  /// Opens the device's slot where there is none.
  Result<void> open();
  /// Hands a job to the device. After an error, nothing of it is under way.
  Result<void> begin(std::shared_ptr<JobState> job);
  /// Whether the job that could not begin can once more: nothing of it has been at the caller's buffers.
  bool may_begin_again() const noexcept { return !touched_; }
  bool busy() const noexcept { return job_ != nullptr; }
  /// Whether somebody else has ended the job, and the device has not.
  bool overdue() const noexcept { return left_at_.has_value(); }
  /// What became of the job: where the device has ended it, so does this; where it is overdue for too long, it is
  /// left to the device.
  enum class Look { under_way, ended, abandoned };
  Look look();
  /// Drops idle memory of the device.
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
  /// Takes back what was lent; the device no longer uses it.
  void give_back();
  /// Closes the device's slot, which waits for it.
  void close();
  /// Leaves the slot and all it uses as they are for ever: the device may be at work on it.
  void abandon();

  Scheduler& scheduler_;
  LaneState& lane_;
  const unsigned track_;
  SlotMemory memory_;
  std::unique_ptr<Slot> slot_;

  std::shared_ptr<JobState> job_;
  bool touched_ = false;
  /// When it is left to the device.
  std::optional<Clock::time_point> left_at_;
  /// The job's memory, by its places; and what of it is lent.
  std::vector<const Buffer*> buffers_;
  std::vector<std::unique_ptr<Buffer>> lent_;
  std::span<std::byte> staged_;
  std::vector<Copy> uploads_;
  std::vector<Copy> downloads_;
};

}  // namespace kiln::exec
