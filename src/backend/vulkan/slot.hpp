#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <kiln/slot.hpp>

#include "backend/slot_base.hpp"
#include "backend/vulkan/commands.hpp"
#include "backend/vulkan/context.hpp"

namespace kiln::vulkan {

/// Timestamps that a queue writes between pieces of work. Query pools are kept and reused. Used by one thread at a
/// time.
class Stamps {
 public:
  explicit Stamps(const Context& context) noexcept : context_(context) {}
  ~Stamps();
  Stamps(const Stamps&) = delete;
  Stamps& operator=(const Stamps&) = delete;

  /// Starts again at 0. The device must have written all earlier timestamps.
  void reset() noexcept { count_ = 0; }
  /// Records a timestamp, which the device writes when all earlier work has ended.
  Result<void> write(VkCommandBuffer commands);
  std::size_t count() const noexcept { return count_; }
  /// All timestamps; empty if the driver does not return them. Call it after the work has ended.
  std::vector<std::uint64_t> read() const;

 private:
  const Context& context_;
  std::vector<VkQueryPool> pools_;
  std::size_t count_ = 0;
};

/// A slot that records its work for the device's queues. If copies have separate queues, a submission consists of
/// parts: each goes to one queue and begins when the previous part has ended.
class VulkanSlot final : public backend::SlotBase<DeviceBuffer, Context> {
 public:
  static Result<std::unique_ptr<Slot>> open(std::shared_ptr<Context> context, const DeviceInfo& device);
  VulkanSlot(std::shared_ptr<Context> context, const DeviceInfo& device, Context::Route route)
      : SlotBase(*context, device), context_(std::move(context)), route_(std::move(route)) {}
  ~VulkanSlot() override;

  Result<void> launch(kiln::Module& module, const Launch& launch) override;
  Result<void> submit() override;
  Result<bool> finished() override;
  Result<void> wait() override;
  std::vector<Ran> times() override { return ran_; }
  void give_up() noexcept override {
    if (!std::exchange(given_up_, true)) ++route_.compute->stuck;
  }

 private:
  enum class Role { upload, compute, download };

  /// Commands for one queue, reused by later submissions.
  struct Part {
    Part(const Context& of_context, Role of_role, Queue& of_queue)
        : context(of_context), role(of_role), queue(of_queue), stamps(of_context) {}
    ~Part() { context.vk->DestroySemaphore(context.device, ended.handle, nullptr); }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    const Context& context;
    const Role role;
    Queue& queue;
    std::unique_ptr<Commands> commands = nullptr;
    Stamps stamps;
    std::vector<backend::Piece> pieces = {};
    /// Signalled when the part has ended; the next part waits for it.
    Semaphore ended = {};
  };

  bool in_use() const noexcept override { return !order_.empty(); }
  Result<std::span<std::byte>> allocate_staging(std::size_t bytes) override;
  Result<void> queue_copy(const Copy& copy) override;
  Result<void> queue_nothing() override;
  /// Null if this work goes to the compute queue together with the launches.
  Queue* queue_of(Role role) const noexcept;
  /// Submits timestamps to the queues, so that their clocks are set before the first work.
  Result<void> set_clocks();
  /// The part for the next piece of work: the last part if it has this role, otherwise a new last part, which
  /// begins with a timestamp.
  Result<Part*> part_for(Role role);
  /// A part of this role that the current submission does not use yet.
  Result<Part*> unused_part(Role role);
  /// The part for an empty piece: the last one.
  Result<Part*> last_part();
  /// Adds a recorded piece to the part, with a timestamp after it. An empty piece (not `work`) gets no timestamp.
  Result<void> note_piece(Part& part, bool work);
  /// Called when the last part has ended: makes all parts ready for recording, and reads when the pieces ran.
  Result<void> end();
  /// Waits for the work of all parts, then destroys them.
  void drop_parts();
  /// Switches to other queues if some have no stuck work. Nothing may be recorded or in flight.
  void leave_stuck_queue();

  const std::shared_ptr<Context> context_;
  Context::Route route_;
  std::unique_ptr<DeviceBuffer> staging_;
  std::vector<std::unique_ptr<Part>> parts_;
  /// The parts of the recorded or submitted work, in order.
  std::vector<Part*> order_;
  std::chrono::steady_clock::time_point submitted_ = {};
  /// Whether submitted work has not been seen to end.
  bool busy_ = false;
  bool given_up_ = false;
  std::vector<Ran> ran_;
};

}  // namespace kiln::vulkan
