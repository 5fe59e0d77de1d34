#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <kiln/vulkan.hpp>

#include "backend/vulkan/context.hpp"
#include "backend/vulkan/memory.hpp"

namespace kiln::vulkan {

/// The descriptor sets of launches, from pools that grow in number and are kept. Used by one thread at a time.
class Descriptors {
 public:
  explicit Descriptors(const Context& context) noexcept : context_(context) {}
  ~Descriptors();
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  /// A set that names these buffers, until all are taken back. `doing` is what it is for, as in "launching gemm".
  Result<VkDescriptorSet> describe(const Module& module, std::span<const DeviceBuffer* const> buffers,
                                   std::string_view doing);
  /// Takes all sets back; the device uses none of them any more.
  Result<void> reset(std::string_view doing);

 private:
  struct Pool {
    VkDescriptorPool handle = nullptr;
    std::uint32_t descriptors = 0;
    /// What is left of its sets and descriptors.
    std::uint32_t sets_left = 0;
    std::uint32_t descriptors_left = 0;
  };
  /// A pool with room for one more set.
  Result<Pool*> with_room(std::uint32_t descriptors, std::string_view doing);

  const Context& context_;
  std::vector<Pool> pools_;
};

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

/// What one thread needs to have work done and wait for it, and no other may use meanwhile: commands, and memory
/// that data passes through.
class SyncCommands {
 public:
  static Result<std::unique_ptr<SyncCommands>> create(std::shared_ptr<Context> context);
  SyncCommands(std::shared_ptr<Context> context, std::unique_ptr<Commands> commands) noexcept
      : context_(std::move(context)), commands_(std::move(commands)) {}

  /// Runs a program on buffers that it was checked to fit, and waits for its end.
  Result<void> launch(const Module& module, std::span<const DeviceBuffer* const> buffers, const Launch& launch);
  /// Copy to and from memory that the host does not reach.
  Result<void> write(const DeviceBuffer& buffer, std::span<const std::byte> bytes, std::size_t offset);
  Result<void> read(const DeviceBuffer& buffer, std::span<std::byte> bytes, std::size_t offset);

 private:
  /// Has the queue do what was written down; when it returns, all the device wrote is to be seen.
  Result<void> run(std::string_view doing);
  /// Makes `staging_` hold as much of `bytes` as is copied in one go.
  Result<void> stage(std::size_t bytes);

  const std::shared_ptr<Context> context_;
  std::unique_ptr<DeviceBuffer> staging_;
  // Destroyed first: it waits for what the device still does.
  const std::unique_ptr<Commands> commands_;
};

}  // namespace kiln::vulkan
