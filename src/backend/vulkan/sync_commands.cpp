#include "backend/vulkan/sync_commands.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/try.hpp"

namespace kiln::vulkan {
namespace {

/// More goes in several copies.
constexpr std::size_t largest_staging = std::size_t{16} << 20;
constexpr std::size_t smallest_staging = std::size_t{64} << 10;

}  // namespace

Result<std::unique_ptr<SyncCommands>> SyncCommands::create(std::shared_ptr<Context> context) {
  auto commands = KILN_TRY(Commands::create(context, context->first_queue()));
  return std::make_unique<SyncCommands>(std::move(context), std::move(commands));
}

Result<void> SyncCommands::run(std::string_view doing) {
  KILN_TRY(commands_->submit(doing));
  return commands_->wait(doing);
}

Result<void> SyncCommands::launch(const Module& module, std::span<const DeviceBuffer* const> buffers,
                                  const Launch& launch) {
  const std::string doing = fmt::format("launching {}", module.name());
  KILN_TRY(commands_->launch(module, buffers, launch, doing));
  return run(doing);
}

Result<void> SyncCommands::stage(std::size_t bytes) {
  bytes = std::clamp(bytes, smallest_staging, largest_staging);
  if (staging_ != nullptr && staging_->size() >= bytes) return {};
  auto made = KILN_TRY(DeviceBuffer::allocate(context_, bytes, DeviceBuffer::Use::staging));
  staging_ = std::move(made);
  return {};
}

Result<void> SyncCommands::write(const DeviceBuffer& buffer, std::span<const std::byte> bytes, std::size_t offset) {
  const std::string doing = fmt::format("writing {} bytes", bytes.size());
  KILN_TRY(stage(bytes.size()));
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t size = std::min(bytes.size() - done, staging_->size());
    std::memcpy(staging_->writable(), bytes.data() + done, size);
    KILN_TRY(commands_->copy(*staging_, 0, buffer, offset + done, size, doing));
    KILN_TRY(run(doing));
    done += size;
  }
  return {};
}

Result<void> SyncCommands::read(const DeviceBuffer& buffer, std::span<std::byte> bytes, std::size_t offset) {
  const std::string doing = fmt::format("reading {} bytes", bytes.size());
  KILN_TRY(stage(bytes.size()));
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t size = std::min(bytes.size() - done, staging_->size());
    KILN_TRY(commands_->copy(buffer, offset + done, *staging_, 0, size, doing));
    KILN_TRY(run(doing));
    std::memcpy(bytes.data() + done, staging_->writable(), size);
    done += size;
  }
  return {};
}

}  // namespace kiln::vulkan
