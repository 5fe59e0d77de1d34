#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include <kiln/device.hpp>
#include <kiln/result.hpp>

namespace kiln {

/// When a piece of work ran on the device, by the host's clock. Its duration is as precise as the device measures
/// it; its start, compared with other work and with the host, is precise to some tens of microseconds.
struct Ran {
  std::chrono::steady_clock::time_point begin = {};
  std::chrono::steady_clock::time_point end = {};
};

/// Work that a device does in order, without anyone waiting for it, and memory of the host that passes data to and
/// fro at full speed. Pieces of work of different slots overlap as far as the device can.
///
/// A slot is used and destroyed on the thread that opened it. What is queued keeps nothing alive: modules, buffers
/// and the slot stay until the work has ended. After an error, a slot is only to be destroyed, which waits for what
/// the device still does. A refusal to grow the staging memory is the exception: the slot goes on.
///
///     queue upload, launch and download  ->  submit()  ->  finished() or wait()  ->  times()  ->  queue …
class Slot {
 public:
  Slot() = default;
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  virtual ~Slot() = default;

  /// The slot's memory on the host, of `bytes` bytes at least: pinned or mapped, and the same every time unless it
  /// has to grow, when its content is lost. It cannot grow while work is queued, or was submitted and neither
  /// finished() nor wait() has reported its end: the error is `invalid_request`, and the memory, the work and the
  /// slot stay as they were.
  virtual Result<std::span<std::byte>> staging(std::size_t bytes) = 0;

  /// Each of these queues a piece of work, which sees what those queued before it have written. `staged` is where
  /// in the staging memory the bytes are taken from or put.
  virtual Result<void> upload(const Buffer& to, std::size_t offset, std::size_t staged, std::size_t bytes) = 0;
  virtual Result<void> launch(Module& module, const Launch& launch) = 0;
  virtual Result<void> download(const Buffer& from, std::size_t offset, std::size_t staged, std::size_t bytes) = 0;

  /// Submits all queued work to the device.
  virtual Result<void> submit() = 0;
  /// Whether all that was submitted has ended; true if there was nothing. Does not wait.
  virtual Result<bool> finished() = 0;
  /// Waits until all that was submitted has ended.
  virtual Result<void> wait() = 0;
  /// When each piece of the last submission ran, in the order they were queued; after it has ended. Empty where the
  /// device cannot tell.
  virtual std::vector<Ran> times() = 0;

  /// Declares that nobody waits any longer for the work under way, which may never end; other work is kept away
  /// from it if possible. Do not use or destroy the slot until finished() returns true; then it is usable as
  /// before.
  virtual void give_up() noexcept {}
};

}  // namespace kiln
