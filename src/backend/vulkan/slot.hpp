#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <kiln/slot.hpp>

#include "backend/vulkan/commands.hpp"
#include "backend/vulkan/stamps.hpp"

namespace kiln::vulkan {

/// Work for one of the device's queues, written down piece by piece into commands of its own.
class VulkanSlot final : public Slot {
 public:
  static Result<std::unique_ptr<Slot>> open(std::shared_ptr<Context> context, const DeviceInfo& device);
  VulkanSlot(std::shared_ptr<Context> context, const DeviceInfo& device, std::shared_ptr<Queue> queue)
      : context_(std::move(context)), device_(device), queue_(std::move(queue)), stamps_(*context_) {}

  Result<std::span<std::byte>> staging(std::size_t bytes) override;
  Result<void> upload(const Buffer& to, std::size_t offset, std::size_t staged, std::size_t bytes) override;
  Result<void> launch(kiln::Module& module, const Launch& launch) override;
  Result<void> download(const Buffer& from, std::size_t offset, std::size_t staged, std::size_t bytes) override;
  Result<void> submit() override;
  Result<bool> finished() override;
  Result<void> wait() override;
  std::vector<Ran> times() override { return ran_; }

 private:
  /// Has the queue write a timestamp or two, so that its clock is set before there is work.
  Result<void> set_clock();
  /// Begins to write commands down, if that was not done, with a timestamp before the first.
  Result<void> open_commands();
  /// Notes a piece that was written down, or one that is no work.
  Result<void> note_piece(bool work);
  /// The buffer as one of this device's, if the bytes fit in it and in the staging memory.
  Result<const DeviceBuffer*> fitting(const Buffer& buffer, std::size_t offset, std::size_t staged,
                                      std::size_t bytes) const;
  /// Reads when the pieces ran; they have ended just now.
  void read_times();

  const std::shared_ptr<Context> context_;
  const DeviceInfo device_;
  const std::shared_ptr<Queue> queue_;
  std::unique_ptr<DeviceBuffer> staging_;
  Stamps stamps_;
  std::vector<backend::Piece> pieces_;
  std::chrono::steady_clock::time_point submitted_ = {};
  /// Whether something was submitted and its end not seen.
  bool busy_ = false;
  std::vector<Ran> ran_;
  // Destroyed first: it waits for what the device still does.
  std::unique_ptr<Commands> commands_;
};

}  // namespace kiln::vulkan
