#pragma once

#include <memory>
#include <span>
#include <string_view>

#include <kiln/vulkan.hpp>

#include "backend/vulkan/context.hpp"
#include "backend/vulkan/descriptors.hpp"
#include "backend/vulkan/memory.hpp"

namespace kiln::vulkan {

/// Work for a queue: written down, submitted, done, and written anew. Used by one thread at a time. `doing` is what
/// errors say the work was for, as in "launching gemm".
class Commands {
 public:
  /// The queue is one of the context's.
  static Result<std::unique_ptr<Commands>> create(std::shared_ptr<Context> context, Queue& queue);
  Commands(std::shared_ptr<Context> context, Queue& queue) noexcept
      : context_(std::move(context)), queue_(queue), descriptors_(*context_) {}
  /// Waits for what the device still does.
  ~Commands();
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  /// The commands written since the last submission, for more to be added; waits for the end of that first.
  Result<VkCommandBuffer> open(std::string_view doing);
  /// Each of these begins when what was written down before has ended, and sees what it wrote.
  Result<void> copy(const DeviceBuffer& from, std::size_t from_offset, const DeviceBuffer& to,
                    std::size_t to_offset, std::size_t bytes, std::string_view doing);
  /// The buffers are those that the program was checked to take.
  Result<void> launch(const Module& module, std::span<const DeviceBuffer* const> buffers, const Launch& launch,
                      std::string_view doing);

  /// Hands over what was written down, if anything was: to begin after `before`, to signal `after`, where these
  /// are not null.
  Result<void> submit(std::string_view doing, VkSemaphore before = nullptr, VkSemaphore after = nullptr);
  /// Whether all that was submitted has ended, and what it wrote is to be seen; does not wait.
  Result<bool> finished(std::string_view doing);
  /// Waits for that.
  Result<void> wait(std::string_view doing);

 private:
  void barrier(VkPipelineStageFlags after, VkAccessFlags seen);

  const std::shared_ptr<Context> context_;
  Queue& queue_;
  VkCommandPool pool_ = nullptr;
  VkCommandBuffer command_ = nullptr;
  VkFence fence_ = nullptr;
  Descriptors descriptors_;
  bool open_ = false;
  bool busy_ = false;
};

}  // namespace kiln::vulkan
