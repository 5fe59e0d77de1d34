#pragma once

#include <cstddef>
#include <memory>

#include <kiln/device.hpp>

#include "backend/vulkan/context.hpp"

namespace kiln::vulkan {

/// A VkBuffer with memory of its own.
class DeviceBuffer final : public Buffer {
 public:
  /// What programs work on, or what data passes through on its way there and back.
  enum class Use { storage, staging };

  static Result<std::unique_ptr<DeviceBuffer>> allocate(std::shared_ptr<Context> context, std::size_t bytes,
                                                        Use use);
  DeviceBuffer(std::shared_ptr<Context> context, std::size_t size) noexcept
      : context_(std::move(context)), size_(size) {}
  ~DeviceBuffer() override;

  std::size_t size() const noexcept override { return size_; }
  VkBuffer handle() const noexcept { return buffer_; }
  const Context* owner() const noexcept { return context_.get(); }
  /// Where the host writes it; null where it cannot.
  std::byte* writable() const noexcept { return mapped_; }
  /// Where the host reads it; null where it cannot, or only so slowly that a copy is faster.
  const std::byte* readable() const noexcept { return cached_ ? mapped_ : nullptr; }

 private:
  /// Joins the buffer to its memory, and maps that where it can be.
  Result<void> bind(VkMemoryPropertyFlags flags, Use use);

  const std::shared_ptr<Context> context_;
  const std::size_t size_;
  VkBuffer buffer_ = nullptr;
  VkDeviceMemory memory_ = nullptr;
  std::byte* mapped_ = nullptr;
  bool cached_ = false;
};

}  // namespace kiln::vulkan
