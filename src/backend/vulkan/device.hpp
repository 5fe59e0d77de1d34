#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <kiln/vulkan.hpp>

#include "backend/pool.hpp"
#include "backend/vulkan/commands.hpp"
#include "backend/vulkan/context.hpp"
#include "backend/vulkan/shaderc.hpp"

namespace kiln::vulkan {

/// A device on Vulkan compute pipelines. Every launch borrows a command buffer for its duration.
class VulkanDevice final : public Device {
 public:
  /// `shaderc` is null if there is no compiler; then `info` says why.
  VulkanDevice(std::shared_ptr<Context> context, std::shared_ptr<const Shaderc> shaderc, DeviceInfo info)
      : context_(std::move(context)), shaderc_(std::move(shaderc)), info_(std::move(info)) {}

  const Identity& identity() const noexcept override { return info_.identity; }
  const DeviceInfo& info() const noexcept override { return info_; }

  Result<Compiled> compile(const Request& request) override;
  Result<std::unique_ptr<kiln::Module>> load(const Binary& binary) override;
  unsigned accepts(const Identity& target) const override;
  Result<Compiled> adapt(const Identity& target, const Binary& binary) override;
  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes) override;
  Result<void> write(Buffer& buffer, std::span<const std::byte> bytes, std::size_t offset) override;
  Result<void> read(const Buffer& buffer, std::span<std::byte> bytes, std::size_t offset) override;
  Result<void> launch(kiln::Module& module, const Launch& launch) override;
  Result<std::vector<Parameter>> parameters(kiln::Module& module) override;
  Result<std::unique_ptr<Slot>> open_slot() override;

  const std::shared_ptr<Context>& context() const noexcept { return context_; }

 private:
  /// Runs `work` on borrowed commands, and discards them if it fails.
  template <class Work>
  Result<void> with_commands(Work work);

  const std::shared_ptr<Context> context_;
  const std::shared_ptr<const Shaderc> shaderc_;
  const DeviceInfo info_;
  backend::Pool<SyncCommands> idle_commands_;
};

/// Lists the Vulkan devices of this machine, and opens the one with this number.
std::vector<DeviceInfo> list_vulkan_devices(const Log& log);
Result<std::shared_ptr<Device>> open_vulkan_device(std::size_t number, const Log& log);
/// As above; `reach` selects how the host accesses buffers.
Result<std::shared_ptr<Device>> open_vulkan_device(std::size_t number, const Log& log, Context::Reach reach);

}  // namespace kiln::vulkan
