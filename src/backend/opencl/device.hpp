#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <kiln/opencl.hpp>

#include "backend/opencl/memory.hpp"
#include "backend/opencl/program.hpp"

namespace kiln::opencl {

/// A device on OpenCL. Every call borrows a queue for its duration.
class ClDevice final : public Device {
 public:
  ClDevice(std::shared_ptr<const Context> context, DeviceInfo info)
      : context_(std::move(context)), info_(std::move(info)) {}

  const Identity& identity() const noexcept override { return info_.identity; }
  const DeviceInfo& info() const noexcept override { return info_; }

  const std::shared_ptr<const Context>& context() const noexcept { return context_; }

  // Measured with PoCL 3.1, and with NVIDIA's driver 580 on an H200: 48 programs are compiled and loaded hardly
  // faster by several threads.
  unsigned useful_threads() const noexcept override { return 1; }
  Result<Compiled> compile(const Request& request) override { return BuiltProgram::compile(context_, request); }
  Result<std::unique_ptr<kiln::Module>> load(const Binary& binary) override {
    return BuiltProgram::load(context_, binary);
  }
  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes) override;
  Result<void> write(Buffer& buffer, std::span<const std::byte> bytes, std::size_t offset) override;
  Result<void> read(const Buffer& buffer, std::span<std::byte> bytes, std::size_t offset) override;
  Result<void> launch(kiln::Module& module, const Launch& launch) override;
  Result<std::vector<Parameter>> parameters(kiln::Module& module) override;
  Result<std::unique_ptr<Slot>> open_slot() override;

 private:
  /// Calls `enqueue` with a queue; it must wait for the end of its work. `doing` returns the name of the operation,
  /// for errors.
  template <class Enqueue, class Doing>
  Result<void> run_on_queue(Enqueue enqueue, Doing doing);

  const std::shared_ptr<const Context> context_;
  const DeviceInfo info_;
  backend::Pool<Queue> queues_;
};

/// Lists the OpenCL devices of this machine, and opens the one with this number.
std::vector<DeviceInfo> list_cl_devices(const Log& log);
Result<std::shared_ptr<Device>> open_cl_device(std::size_t number, const Log& log);

}  // namespace kiln::opencl
