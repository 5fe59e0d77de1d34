#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include <fmt/format.h>

#include <kiln/slot.hpp>

#include "backend/launch_checks.hpp"
#include "base/try.hpp"

namespace kiln::backend {

/// The part of a slot that all APIs share: it checks arguments and decides when staging memory may grow.
/// `DeviceBuffer` is the API's buffer class; its owner() is the `Owner` of the slot.
template <class DeviceBuffer, class Owner>
class SlotBase : public Slot {
 public:
  Result<std::span<std::byte>> staging(std::size_t bytes) final {
    if (bytes <= staging_.size()) return staging_;
    if (in_use())
      return Error(ErrorCode::invalid_request, "staging memory cannot grow while work is queued or in flight");
    staging_ = {};
    staging_ = KILN_TRY(allocate_staging(bytes));
    return staging_;
  }
  Result<void> upload(const Buffer& to, std::size_t offset, std::size_t staged, std::size_t bytes) final {
    return copy(Direction::upload, to, offset, staged, bytes);
  }
  Result<void> download(const Buffer& from, std::size_t offset, std::size_t staged, std::size_t bytes) final {
    return copy(Direction::download, from, offset, staged, bytes);
  }

 protected:
  enum class Direction { upload, download };

  /// A copy between a buffer and the staging memory. Both ranges have been checked.
  struct Copy {
    Direction direction;
    const DeviceBuffer& buffer;
    std::size_t offset;
    std::size_t staged;
    std::size_t bytes;

    /// For error messages, as in "uploading 12 bytes".
    std::string describe() const {
      return fmt::format("{} {} bytes", direction == Direction::upload ? "uploading" : "downloading", bytes);
    }
  };

  /// `owner` must outlive the slot.
  SlotBase(const Owner& owner, DeviceInfo device) : device_(std::move(device)), owner_(owner) {}

  /// Whether work is queued, or submitted work has not been seen to end.
  virtual bool in_use() const noexcept = 0;
  /// Replaces the staging memory. The device no longer uses the old memory.
  virtual Result<std::span<std::byte>> allocate_staging(std::size_t bytes) = 0;
  /// Queues a copy of at least one byte.
  virtual Result<void> queue_copy(const Copy& copy) = 0;
  /// Queues an empty piece, for a copy of no bytes or a launch of no groups, so that times() has an entry for it.
  virtual Result<void> queue_nothing() = 0;

  std::span<std::byte> staged() const noexcept { return staging_; }

  const DeviceInfo device_;

 private:
  Result<void> copy(Direction direction, const Buffer& buffer, std::size_t offset, std::size_t staged,
                    std::size_t bytes) {
    if (staged > staging_.size() || bytes > staging_.size() - staged)
      return Error(ErrorCode::invalid_request,
                   fmt::format("{} bytes at offset {} do not fit in staging memory of {} bytes", bytes, staged,
                               staging_.size()));
    const auto* own = KILN_TRY(own_buffer<DeviceBuffer>(buffer, owner_, device_.name, bytes, offset));
    if (bytes == 0) return queue_nothing();
    return queue_copy({direction, *own, offset, staged, bytes});
  }

  const Owner& owner_;
  std::span<std::byte> staging_;
};

}  // namespace kiln::backend
