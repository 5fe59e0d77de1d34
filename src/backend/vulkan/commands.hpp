#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <kiln/vulkan.hpp>

#include "backend/vulkan/context.hpp"
#include "backend/vulkan/memory.hpp"
#include "backend/vulkan/module.hpp"

namespace kiln::vulkan {

/// Allocates the descriptor sets of launches. Pools are kept and reused. Used by one thread at a time.
class Descriptors {
 public:
  explicit Descriptors(const Context& context) noexcept : context_(context) {}
  ~Descriptors();
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  /// The sets of a layout, without content, valid until reset(). `doing` names the operation in errors, as in
  /// "launching gemm".
  Result<std::vector<VkDescriptorSet>> allocate(const Context::Layout& layout, std::string_view doing);
  /// Frees all sets. The device must no longer use them.
  Result<void> reset(std::string_view doing);

 private:
  using Counts = std::array<std::uint32_t, descriptor_types>;
  struct Pool {
    VkDescriptorPool handle = nullptr;
    Counts descriptors = {};
    std::uint32_t sets = 0;
    /// The numbers of unused sets and descriptors.
    Counts descriptors_left = {};
    std::uint32_t sets_left = 0;
  };
  /// A pool with at least this many free sets and descriptors.
  Result<Pool*> with_room(std::uint32_t sets, const Counts& descriptors, std::string_view doing);

  const Context& context_;
  std::vector<Pool> pools_;
};

/// Memory for uniform buffers that launches give as values. Used by one thread at a time.
class Uniforms {
 public:
  explicit Uniforms(std::shared_ptr<Context> context) noexcept : context_(std::move(context)) {}

  struct Place {
    const DeviceBuffer* buffer = nullptr;
    std::size_t offset = 0;
  };
  /// A place for `bytes` bytes, valid until reset().
  Result<Place> allocate(std::size_t bytes);
  /// Frees all places. The device must no longer use them.
  void reset() noexcept { block_ = used_ = 0; }

 private:
  const std::shared_ptr<Context> context_;
  std::vector<std::unique_ptr<DeviceBuffer>> blocks_;
  /// The block of the next place, and the bytes of it that are in use.
  std::size_t block_ = 0;
  std::size_t used_ = 0;
};

/// Records work into a command buffer, and owns the descriptor sets and the memory that the work needs. Used by one
/// thread at a time. `doing` names the operation in errors, as in "launching gemm".
class Recorder {
 public:
  explicit Recorder(std::shared_ptr<Context> context) noexcept
      : context_(std::move(context)), descriptors_(*context_), uniforms_(context_) {}

  /// Records into this command buffer, which must be in the recording state, from now on.
  void record_into(VkCommandBuffer commands) noexcept { command_ = commands; }
  /// Makes all commands that are recorded later wait for all earlier ones, and see their writes.
  void barrier(VkPipelineStageFlags after = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
               VkAccessFlags seen = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT);
  /// Each of these records work and a barrier behind it.
  void copy(const DeviceBuffer& from, std::size_t from_offset, const DeviceBuffer& to, std::size_t to_offset,
            std::size_t bytes);
  Result<void> launch(const Fitting& fitted, std::string_view doing);
  /// Frees what the recorded work needed. The device must no longer use it.
  Result<void> reset(std::string_view doing);

 private:
  /// Records what copies the values of uniform buffers to their places, in the order of the launch's arguments.
  Result<std::vector<Uniforms::Place>> update_uniforms(const Fitting& fitted, std::string_view doing);
  /// Records what binds the resources of a launch.
  Result<void> bind_resources(const Fitting& fitted, std::string_view doing);

  const std::shared_ptr<Context> context_;
  VkCommandBuffer command_ = nullptr;
  Descriptors descriptors_;
  Uniforms uniforms_;
};

/// A command buffer for a queue, which is recorded, submitted, and recorded again after its end. Used by one thread
/// at a time. `doing` names the operation in errors, as in "launching gemm".
class Commands {
 public:
  /// `queue` must belong to `context`.
  static Result<std::unique_ptr<Commands>> create(std::shared_ptr<Context> context, Queue& queue);
  Commands(std::shared_ptr<Context> context, Queue& queue) noexcept
      : context_(std::move(context)), queue_(queue), recorder_(context_) {}
  /// Waits for submitted work.
  ~Commands();
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  /// The command buffer, open for recording. Waits for the previous submission to end first.
  Result<VkCommandBuffer> open(std::string_view doing);
  /// Each of these records work that starts when all earlier recorded work has ended, and sees its writes.
  Result<void> copy(const DeviceBuffer& from, std::size_t from_offset, const DeviceBuffer& to,
                    std::size_t to_offset, std::size_t bytes, std::string_view doing);
  Result<void> launch(const Fitting& fitted, std::string_view doing);

  /// Whether there is recorded work, which submit() would submit.
  bool has_work() const noexcept { return open_ || ended_; }
  /// Whether there is recorded work whose submission failed. Recording drops it.
  bool has_failed() const noexcept { return ended_; }
  /// Submits the recorded work, if there is any, with these semaphores. After a failure it can be called again.
  Result<void> submit(std::string_view doing, const Semaphores& semaphores = {});
  /// Whether all submitted work has ended and its writes are visible to the host. Does not wait.
  Result<bool> finished(std::string_view doing);
  /// Waits until finished() would return true.
  Result<void> wait(std::string_view doing);

 private:
  const std::shared_ptr<Context> context_;
  Queue& queue_;
  VkCommandPool pool_ = nullptr;
  VkCommandBuffer command_ = nullptr;
  VkFence fence_ = nullptr;
  Recorder recorder_;
  bool open_ = false;
  /// Whether recording has ended, but not the submission.
  bool ended_ = false;
  bool busy_ = false;
};

/// Runs work and waits for its end, with a command buffer and staging memory. Used by one thread at a time.
class SyncCommands {
 public:
  static Result<std::unique_ptr<SyncCommands>> create(std::shared_ptr<Context> context);
  SyncCommands(std::shared_ptr<Context> context, std::unique_ptr<Commands> commands) noexcept
      : context_(std::move(context)), commands_(std::move(commands)) {}

  /// Runs a program and waits for its end.
  Result<void> launch(const Fitting& fitted);
  /// Copy to and from a buffer through staging memory.
  Result<void> write(const DeviceBuffer& buffer, std::span<const std::byte> bytes, std::size_t offset);
  Result<void> read(const DeviceBuffer& buffer, std::span<std::byte> bytes, std::size_t offset);

 private:
  /// Submits the recorded work and waits for its end. Then its writes are visible to the host.
  Result<void> run(std::string_view doing);
  /// Makes `staging_` large enough for one copy of a transfer of `bytes` bytes.
  Result<void> stage(std::size_t bytes);

  const std::shared_ptr<Context> context_;
  std::unique_ptr<DeviceBuffer> staging_;
  // Destroyed first: it waits for submitted work.
  const std::unique_ptr<Commands> commands_;
};

}  // namespace kiln::vulkan
