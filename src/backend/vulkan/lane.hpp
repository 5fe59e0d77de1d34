#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <kiln/vulkan.hpp>

#include "backend/vulkan/context.hpp"
#include "backend/vulkan/memory.hpp"

namespace kiln::vulkan {

/// What one thread needs to have work done, and no other may use meanwhile: commands, descriptors, a fence, and
/// memory that data passes through.
class Lane {
 public:
  static Result<std::unique_ptr<Lane>> create(std::shared_ptr<Context> context);
  explicit Lane(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Runs a program on buffers that it was checked to fit, and waits for its end.
  Result<void> launch(const Module& module, std::span<const DeviceBuffer* const> buffers, const Launch& launch);
  /// Copy to and from memory that the host does not reach.
  Result<void> write(const DeviceBuffer& buffer, std::span<const std::byte> bytes, std::size_t offset);
  Result<void> read(const DeviceBuffer& buffer, std::span<std::byte> bytes, std::size_t offset);

 private:
  /// Has the queue do what `record` writes down; when it returns, all the device wrote is to be seen.
  Result<void> run(std::string_view doing, const std::function<void()>& record);
  Result<VkDescriptorSet> describe(const Module& module, std::span<const DeviceBuffer* const> buffers,
                                   std::string_view doing);
  /// Makes `staging_` hold as much of `bytes` as is copied in one go.
  Result<void> stage(std::size_t bytes);
  void barrier(VkPipelineStageFlags after, VkAccessFlags seen);

  const std::shared_ptr<Context> context_;
  VkCommandPool commands_ = nullptr;
  VkCommandBuffer command_ = nullptr;
  VkFence fence_ = nullptr;
  VkDescriptorPool descriptors_ = nullptr;
  std::uint32_t descriptor_room_ = 0;
  std::unique_ptr<DeviceBuffer> staging_;
  /// Whether the device may still be at work on what was submitted.
  bool busy_ = false;
};

}  // namespace kiln::vulkan
