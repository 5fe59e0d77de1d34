#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <kiln/opengl.hpp>

#include "backend/opengl/share_group.hpp"
#include "backend/vulkan/shaderc.hpp"

namespace kiln::opengl {

/// A device on OpenGL compute shaders. Every call borrows a context of the group for its duration.
class GlDevice final : public Device {
 public:
  /// Queries the properties of the device. `name` is its name for open_device().
  static Result<std::shared_ptr<Device>> open(std::shared_ptr<ShareGroup> group, std::string name, bool software);

  /// `tells_resets`: contexts report whether the GPU was reset. `memory`: the size of the device's memory.
  /// `largest_buffer`: the size of the largest buffer.
  GlDevice(std::shared_ptr<ShareGroup> group, DeviceInfo info, bool tells_resets, std::size_t memory,
           std::size_t largest_buffer)
      : group_(std::move(group)),
        info_(std::move(info)),
        tells_resets_(tells_resets),
        memory_(memory),
        largest_buffer_(largest_buffer) {}

  const Identity& identity() const noexcept override { return info_.identity; }
  const DeviceInfo& info() const noexcept override { return info_; }
  bool usable_from_any_thread() const noexcept override { return group_->pooled(); }
  unsigned useful_threads() const noexcept override;

  Result<Compiled> compile(const Request& request) override;
  Result<std::unique_ptr<kiln::Module>> load(const Binary& binary) override;
  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes) override;
  Result<void> write(Buffer& buffer, std::span<const std::byte> bytes, std::size_t offset) override;
  Result<void> read(const Buffer& buffer, std::span<std::byte> bytes, std::size_t offset) override;
  Result<void> launch(kiln::Module& module, const Launch& launch) override;
  Result<std::vector<Parameter>> parameters(kiln::Module& module) override;
  Result<std::unique_ptr<Slot>> open_slot() override;

  ShareGroup& group() const noexcept { return *group_; }

 private:
  const std::shared_ptr<ShareGroup> group_;
  const DeviceInfo info_;
  const bool tells_resets_;
  const std::size_t memory_;
  const std::size_t largest_buffer_;
  const vulkan::SpirvValidator spirv_validator_;
};

/// Lists the OpenGL devices of this machine, and opens the one with this number.
std::vector<DeviceInfo> list_gl_devices(const Log& log);
Result<std::shared_ptr<Device>> open_gl_device(std::size_t number, const Log& log);

}  // namespace kiln::opengl
