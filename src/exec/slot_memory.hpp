#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <kiln/device.hpp>

namespace kiln::exec {

/// The buffers that a slot lends to its jobs, kept for the next ones. Jobs that are alike allocate nothing.
class SlotMemory {
 public:
  explicit SlotMemory(Device& device) noexcept : device_(device) {}

  /// A buffer of at least so many bytes.
  Result<std::unique_ptr<Buffer>> take(std::size_t bytes);
  /// Keeps it for later, and drops what has not been taken for long.
  void give_back(std::unique_ptr<Buffer> buffer);
  /// Drops all that is not lent; whether there was anything.
  bool clear() noexcept;

 private:
  struct Idle {
    std::unique_ptr<Buffer> buffer;
    std::uint64_t used;
  };

  Device& device_;
  std::uint64_t uses_ = 0;
  std::vector<Idle> idle_;
};

}  // namespace kiln::exec
