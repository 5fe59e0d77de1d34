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

/// A queue of asynchronous work that the device does in order, and memory of the host through which data is copied
/// at full speed. Work of different slots overlaps as far as the device can. Made by Device::open_slot().
///
/// All functions and the destructor must be called on the thread that opened the slot. Queued work owns nothing:
/// keep the modules, the buffers and the slot until it has ended. A slot may outlive its device. The destructor
/// waits for the work that the device still does.
///
/// Errors are those of Device::launch() and Device::write(), and invalid_request for a range outside the staging
/// memory. After an error a slot can only be destroyed, with one exception: if staging() refuses to grow while work
/// is queued or in flight, the slot stays usable.
///
///     queue upload, launch and download  ->  submit()  ->  finished() or wait()  ->  times()  ->  queue …
class Slot {
 public:
  Slot() = default;
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  virtual ~Slot() = default;

  /// The slot's memory on the host, pinned or mapped, at least `bytes` bytes. It belongs to the slot. It is the
  /// same every time unless it has to grow, which loses its content. It can grow only if no work is
  /// queued and finished() or wait() has reported the end of all submitted work. Otherwise the error is
  /// invalid_request, and the memory, the work and the slot stay as they were.
  virtual Result<std::span<std::byte>> staging(std::size_t bytes) = 0;

  /// Each of these queues a piece of work, which sees everything that earlier pieces have written. May wait for the
  /// last submission to end. `staged` is the offset of the bytes in the staging memory; they must not be changed
  /// until the work has ended. `launch` is not used after the call.
  virtual Result<void> upload(const Buffer& to, std::size_t offset, std::size_t staged, std::size_t bytes) = 0;
  virtual Result<void> launch(Module& module, const Launch& launch) = 0;
  virtual Result<void> download(const Buffer& from, std::size_t offset, std::size_t staged, std::size_t bytes) = 0;

  /// Submits all queued work to the device, which may already have started it.
  virtual Result<void> submit() = 0;
  /// Whether all submitted work has ended; true if there is none. Does not wait. Returns the error of work that
  /// failed.
  virtual Result<bool> finished() = 0;
  /// Waits until all submitted work has ended, without a time limit. Returns the error of work that failed.
  virtual Result<void> wait() = 0;
  /// When each piece of the last submission ran, in the order in which they were queued. Call it after the work has
  /// ended and before more is submitted. Empty if the device has no clock.
  virtual std::vector<Ran> times() = 0;

  /// Declares that the submitted work may never end, so that other slots avoid its queue if the API has several.
  /// Until finished() returns true, only finished() may be called, and the slot must not be destroyed. Then it is
  /// usable as before.
  virtual void give_up() noexcept {}
};

}  // namespace kiln
