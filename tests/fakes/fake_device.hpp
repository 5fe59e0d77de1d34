#pragma once

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <kiln/device.hpp>
#include <kiln/slot.hpp>

#include "fakes/fake_backend.hpp"

namespace kiln::fakes {

/// The faults that a FakeDevice injects; separate from it because slots may outlive the device.
struct Trouble {
  /// This many of the next allocations, or launches, fail with out_of_memory.
  std::atomic<int> allocation_errors{0};
  std::atomic<int> launch_errors{0};
  /// This many launches succeed before launch_errors applies.
  std::atomic<int> good_launches{0};
  std::atomic<int> open_errors{0};
  /// This many of the next open_slot() calls block until the gate opens.
  std::atomic<int> blocked_opens{0};
  /// This many of the next submissions fail on the device.
  std::atomic<int> device_errors{0};
  std::atomic<int> allocations{0};
  /// The capacity for all buffers together, and the bytes in use.
  std::atomic<std::size_t> memory{std::size_t{1} << 40U};
  std::atomic<std::size_t> used{0};
  std::atomic<int> open_slots{0};
  /// Slots that were given up and have not finished.
  std::atomic<int> given_up{0};

  /// A program with the source "gate" runs until the gate opens. A launch() with the source "stuck" blocks until
  /// then.
  void open_gate() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass_gate() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

  static bool next(std::atomic<int>& left) {
    int seen = left.load();
    while (seen > 0)
      if (left.compare_exchange_weak(seen, seen - 1)) return true;
    return false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

class FakeBuffer final : public Buffer {
 public:
  FakeBuffer(std::size_t size_given, std::shared_ptr<Trouble> trouble)
      : bytes(size_given), trouble_(std::move(trouble)) {
    ++alive;
  }
  ~FakeBuffer() override {
    trouble_->used -= bytes.size();
    --alive;
  }
  std::size_t size() const noexcept override { return bytes.size(); }
  mutable std::vector<unsigned char> bytes;
  static inline std::atomic<int> alive = 0;

 private:
  const std::shared_ptr<Trouble> trouble_;
};

/// A slot that runs each submission on a new thread.
class FakeSlot final : public Slot {
 public:
  explicit FakeSlot(std::shared_ptr<Trouble> trouble) : trouble_(std::move(trouble)) { ++trouble_->open_slots; }
  ~FakeSlot() override {
    running_->done.wait(false);
    --trouble_->open_slots;
  }

  void give_up() noexcept override {
    given_up_ = true;
    ++trouble_->given_up;
  }
  Result<std::span<std::byte>> staging(std::size_t bytes) override {
    if (staging_.size() >= bytes) return std::span(staging_);
    if (!pieces_.empty() || !running_->done)
      return Error(ErrorCode::invalid_request, "the staging memory is in use");
    staging_.resize(bytes);
    return std::span(staging_);
  }
  Result<void> upload(const Buffer& to, std::size_t offset, std::size_t staged, std::size_t bytes) override {
    const auto& buffer = dynamic_cast<const FakeBuffer&>(to);
    pieces_.push_back([&buffer, from = staging_.data() + staged, offset, bytes] {
      std::memcpy(buffer.bytes.data() + offset, from, bytes);
    });
    return {};
  }
  Result<void> download(const Buffer& from, std::size_t offset, std::size_t staged, std::size_t bytes) override {
    const auto& buffer = dynamic_cast<const FakeBuffer&>(from);
    pieces_.push_back([&buffer, to = staging_.data() + staged, offset, bytes] {
      std::memcpy(to, buffer.bytes.data() + offset, bytes);
    });
    return {};
  }
  /// "add N" writes the first buffer plus N, byte by byte, to the last buffer.
  Result<void> launch(Module& module, const Launch& launch) override {
    if (!Trouble::next(trouble_->good_launches) && Trouble::next(trouble_->launch_errors))
      return Error(ErrorCode::out_of_memory, "no memory to launch");
    const std::string& text = dynamic_cast<FakeModule&>(module).text();
    if (text == "stuck") trouble_->pass_gate();
    std::vector<const Buffer*> buffers;
    for (const Argument& argument : launch.arguments)
      if (const auto* range = argument.as<Argument::Range>()) buffers.push_back(range->buffer);
    pieces_.push_back([&text, buffers, trouble = trouble_] {
      if (text == "gate") trouble->pass_gate();
      if (!text.starts_with("add ")) return;
      const auto& from = dynamic_cast<const FakeBuffer&>(*buffers.front());
      const auto& to = dynamic_cast<const FakeBuffer&>(*buffers.back());
      const auto more = static_cast<unsigned char>(std::stoi(text.substr(4)));
      for (std::size_t i = 0; i < std::min(from.bytes.size(), to.bytes.size()); ++i)
        to.bytes[i] = static_cast<unsigned char>(from.bytes[i] + more);
    });
    return {};
  }
  Result<void> submit() override {
    fails_ = Trouble::next(trouble_->device_errors);
    running_ = std::make_shared<Running>();
    // Detached, because the host cannot stop a device: the thread of an abandoned slot keeps running.
    std::thread([running = running_, pieces = std::exchange(pieces_, {})] {
      for (const auto& piece : pieces) {
        const auto begin = std::chrono::steady_clock::now();
        piece();
        running->times.push_back({begin, std::chrono::steady_clock::now()});
      }
      running->done = true;
      running->done.notify_all();
    }).detach();
    return {};
  }
  Result<bool> finished() override {
    if (!running_->done) return false;
    if (std::exchange(given_up_, false)) --trouble_->given_up;
    if (fails_) return Error(ErrorCode::device_failed, "the fake device failed");
    return true;
  }
  Result<void> wait() override {
    running_->done.wait(false);
    if (fails_) return Error(ErrorCode::device_failed, "the fake device failed");
    return {};
  }
  std::vector<Ran> times() override { return running_->times; }

 private:
  const std::shared_ptr<Trouble> trouble_;
  std::vector<std::byte> staging_;
  std::vector<std::function<void()>> pieces_;
  struct Running {
    std::vector<Ran> times;
    std::atomic<bool> done = false;
  };
  std::shared_ptr<Running> running_ = [] {
    auto idle = std::make_shared<Running>();
    idle->done = true;
    return idle;
  }();
  bool fails_ = false;
  bool given_up_ = false;
};

/// A device that runs out of memory, fails or hangs on demand, which real ones cannot.
class FakeDevice final : public Device {
 public:
  const Identity& identity() const noexcept override { return backend.identity(); }
  const DeviceInfo& info() const noexcept override { return info_; }
  Result<Compiled> compile(const Request& request) override { return backend.compile(request); }
  Result<std::unique_ptr<Module>> load(const Binary& binary) override { return backend.load(binary); }
  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes) override {
    std::size_t used = trouble->used;
    do {
      if (Trouble::next(trouble->allocation_errors) || bytes > trouble->memory - used)
        return Error(ErrorCode::out_of_memory, "the fake device has no memory left");
    } while (!trouble->used.compare_exchange_weak(used, used + bytes));
    ++trouble->allocations;
    return std::unique_ptr<Buffer>(std::make_unique<FakeBuffer>(bytes, trouble));
  }
  Result<void> write(Buffer& buffer, std::span<const std::byte> bytes, std::size_t offset) override {
    std::memcpy(dynamic_cast<FakeBuffer&>(buffer).bytes.data() + offset, bytes.data(), bytes.size());
    return {};
  }
  Result<void> read(const Buffer& buffer, std::span<std::byte> bytes, std::size_t offset) override {
    std::memcpy(bytes.data(), dynamic_cast<const FakeBuffer&>(buffer).bytes.data() + offset, bytes.size());
    return {};
  }
  Result<void> launch(Module& module, const Launch& launch) override {
    FakeSlot slot(trouble);
    if (auto ok = slot.launch(module, launch); !ok) return ok;
    if (auto ok = slot.submit(); !ok) return ok;
    return slot.wait();
  }
  Result<std::vector<Parameter>> parameters(Module&) override { return std::vector<Parameter>(); }
  Result<std::unique_ptr<Slot>> open_slot() override {
    if (Trouble::next(trouble->blocked_opens)) trouble->pass_gate();
    if (Trouble::next(trouble->open_errors)) return Error(ErrorCode::device_failed, "no slot to be had");
    return std::unique_ptr<Slot>(std::make_unique<FakeSlot>(trouble));
  }

  FakeBackend backend;
  std::shared_ptr<Trouble> trouble = std::make_shared<Trouble>();

 private:
  DeviceInfo info_{.name = "fake:0", .identity = backend.identity()};
};

}  // namespace kiln::fakes
