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

/// Timestamps that a queue writes among its work, in query pools that grow in number and are kept. Used by one
/// thread at a time.
class Stamps {
 public:
  explicit Stamps(const Context& context) noexcept : context_(context) {}
  ~Stamps();
  Stamps(const Stamps&) = delete;
  Stamps& operator=(const Stamps&) = delete;

  /// Begins anew; the device writes none of them any more.
  void reset() noexcept { count_ = 0; }
  /// Has the device write down when all the work before has ended.
  Result<void> write(VkCommandBuffer commands);
  std::size_t count() const noexcept { return count_; }
  /// All of them, after the work has ended; empty where the driver does not tell.
  std::vector<std::uint64_t> read() const;

 private:
  const Context& context_;
  std::vector<VkQueryPool> pools_;
  std::size_t count_ = 0;
};

/// Work for the device's queues, written down piece by piece. Where copies have queues of their own, what is
/// submitted is in parts, each for one queue and begun when the one before has ended.
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

  /// Commands for one queue, used again in later submissions.
  struct Part {
    Part(const Context& of_context, Role of_role, Queue& of_queue)
        : context(of_context), role(of_role), queue(of_queue), stamps(of_context) {}
    ~Part() { context.vk->DestroySemaphore(context.device, ended, nullptr); }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    const Context& context;
    const Role role;
    Queue& queue;
    std::unique_ptr<Commands> commands = nullptr;
    Stamps stamps;
    std::vector<backend::Piece> pieces = {};
    /// Signalled at its end, for the part behind it.
    VkSemaphore ended = nullptr;
  };

  bool in_use() const noexcept override { return !order_.empty(); }
  Result<std::span<std::byte>> allocate_staging(std::size_t bytes) override;
  Result<void> queue_copy(const Copy& copy) override;
  Result<void> queue_nothing() override;
  /// Null where such work is among what computes.
  Queue* queue_of(Role role) const noexcept;
  /// Has the queues write a timestamp or two, so that their clocks are set before there is work.
  Result<void> set_clocks();
  /// The part that a piece of work goes to: the last, or one that is put behind it, with a timestamp before its
  /// first piece.
  Result<Part*> part_for(Role role);
  /// One that this submission does not use yet.
  Result<Part*> unused_part(Role role);
  /// The last part, for what is no work.
  Result<Part*> last_part();
  /// Notes a piece that was written down, or one that is no work.
  Result<void> note_piece(Part& part, bool work);
  /// Makes all parts ready to be written anew, and reads when the pieces ran; the last has ended just now.
  Result<void> end();
  /// Ends the parts, once they have done what they were given.
  void drop_parts();
  /// Takes other queues, if there are some without work that was given up; nothing is written down or under way.
  void leave_stuck_queue();

  const std::shared_ptr<Context> context_;
  Context::Route route_;
  std::unique_ptr<DeviceBuffer> staging_;
  std::vector<std::unique_ptr<Part>> parts_;
  /// The parts of what is written down or was submitted, in their order.
  std::vector<Part*> order_;
  std::chrono::steady_clock::time_point submitted_ = {};
  /// Whether something was submitted and its end not seen.
  bool busy_ = false;
  bool given_up_ = false;
  std::vector<Ran> ran_;
};

}  // namespace kiln::vulkan
