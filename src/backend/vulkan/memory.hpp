#pragma once

#include <cstddef>
#include <memory>

#include <kiln/device.hpp>

#include "backend/launch_checks.hpp"
#include "backend/vulkan/context.hpp"

namespace kiln::vulkan {

/// A VkBuffer and its memory, or a part of a caller's.
class DeviceBuffer final : public Buffer {
 public:
  /// storage: programs access the buffer. staging: the host copies data through the buffer.
  enum class Use { storage, staging };

  static Result<std::unique_ptr<DeviceBuffer>> allocate(std::shared_ptr<Context> context, std::size_t bytes,
                                                        Use use);
  /// Owns nothing yet: see allocate().
  DeviceBuffer(std::shared_ptr<Context> context, std::size_t size) noexcept
      : context_(std::move(context)), size_(size) {}
  /// A part of a caller's buffer, which it does not own.
  DeviceBuffer(std::shared_ptr<Context> context, VkBuffer callers, std::size_t size, std::size_t base) noexcept
      : context_(std::move(context)), size_(size), base_(base), owns_(false), buffer_(callers) {}
  ~DeviceBuffer() override;

  std::size_t size() const noexcept override { return size_; }
  VkBuffer handle() const noexcept { return buffer_; }
  /// Where the buffer begins in `handle()`.
  std::size_t base() const noexcept { return base_; }
  /// The bytes from base() on that programs may access: size(), rounded up for the device's own buffers.
  std::size_t accessible_bytes() const noexcept { return owns_ ? backend::allocated_bytes(size_) : size_; }
  const Context* owner() const noexcept { return context_.get(); }
  /// The address for writes by the host; null if the buffer is not mapped.
  std::byte* writable() const noexcept { return mapped_; }
  /// The address for reads by the host; null if the buffer is not mapped, or is uncached, so that a copy is faster.
  const std::byte* readable() const noexcept { return cached_ ? mapped_ : nullptr; }

 private:
  /// Binds the memory to the buffer, and maps it if the host can and may access it.
  Result<void> bind(VkMemoryPropertyFlags flags, Use use);

  const std::shared_ptr<Context> context_;
  const std::size_t size_;
  const std::size_t base_ = 0;
  const bool owns_ = true;
  VkBuffer buffer_ = nullptr;
  VkDeviceMemory memory_ = nullptr;
  std::byte* mapped_ = nullptr;
  bool cached_ = false;
};

}  // namespace kiln::vulkan
