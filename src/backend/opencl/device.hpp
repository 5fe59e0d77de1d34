#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <kiln/opencl.hpp>

#include "backend/opencl/program.hpp"

namespace kiln::opencl {

/// A command queue, one thread's at a time.
class Queue {
 public:
  Queue(std::shared_ptr<const Context> context, cl_command_queue queue) noexcept
      : context_(std::move(context)), queue_(queue) {}
  ~Queue() { context_->cl().release_command_queue(queue_); }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  cl_command_queue get() const noexcept { return queue_; }

 private:
  std::shared_ptr<const Context> context_;
  cl_command_queue queue_;
};

/// A device on OpenCL. Every call borrows a queue for its duration.
class ClDevice final : public Device {
 public:
  ClDevice(std::shared_ptr<const Context> context, DeviceInfo info)
      : context_(std::move(context)), info_(std::move(info)) {}

  const Identity& identity() const noexcept override { return info_.identity; }
  const DeviceInfo& info() const noexcept override { return info_; }

  Result<Compiled> compile(const Request& request) override { return Program::compile(context_, request); }
  Result<std::unique_ptr<kiln::Module>> load(const Binary& binary) override {
    return Program::load(context_, binary);
  }
  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes) override;
  Result<void> write(Buffer& buffer, std::span<const std::byte> bytes, std::size_t offset) override;
  Result<void> read(const Buffer& buffer, std::span<std::byte> bytes, std::size_t offset) override;
  Result<void> launch(kiln::Module& module, const Launch& launch) override;
  Result<std::unique_ptr<Slot>> open_slot() override;

 private:
  using QueueLoan = backend::Pool<Queue>::Loan;

  Result<QueueLoan> borrow_queue();
  Result<void> run(const Program& program, const Launch& launch, cl_kernel kernel);
  /// The group's size: the launch's, or the one the source demands.
  Result<std::array<std::size_t, 3>> group_size(const Program& program, const Launch& launch,
                                                cl_kernel kernel) const;
  Result<void> set_arguments(const Program& program, const Launch& launch, cl_kernel kernel) const;

  const std::shared_ptr<const Context> context_;
  const DeviceInfo info_;
  backend::Pool<Queue> queues_;
};

/// The OpenCL devices of this machine, and the one with a number.
std::vector<DeviceInfo> list_cl_devices(const Log& log);
Result<std::shared_ptr<Device>> open_cl_device(std::size_t number, const Log& log);

}  // namespace kiln::opencl
