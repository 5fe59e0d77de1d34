#pragma once

#include <memory>
#include <span>

#include <kiln/vulkan.hpp>

#include "backend/vulkan/commands.hpp"

namespace kiln::vulkan {

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
