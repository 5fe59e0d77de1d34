#pragma once

#include <cstdint>

namespace kiln::base {

/// A small per-thread number, and a logical clock.
///
/// Numbers below `exclusive_slots` belong to one live thread each; free even numbers are given out first. When they
/// run out, threads share the numbers above. If AsymmetricFence is not available, all threads share, because owners
/// of an exclusive slot rely on it.
///
/// Slots are process-wide, as are the counts kept per slot (memory::ResidentPool).
struct ThreadSlot {
  static constexpr std::uint32_t exclusive_slots = 32;
  static constexpr std::uint32_t shared_slots = 8;
  static constexpr std::uint32_t count = exclusive_slots + shared_slots;
  static constexpr std::uint32_t none = count;

  /// This thread's exclusive slot, or none.
  std::uint32_t own = none;
  /// This thread's shared slot, or none. A thread has neither before its first call of number().
  std::uint32_t shared = none;
  /// The latest time stamp of this thread or of earlier owners of its slot.
  std::uint64_t clock = 0;

  std::uint32_t number() noexcept { return own != none ? own : shared_number(); }

  /// In a forked child: frees the slots of threads that exist only in the parent.
  static void keep_only_this_thread() noexcept;

 private:
  [[gnu::cold]] std::uint32_t shared_number() noexcept;
};

/// Read on every cache hit; initial-exec keeps the access cheap in a shared library, too.
extern thread_local constinit ThreadSlot thread_slot __attribute__((tls_model("initial-exec")));

}  // namespace kiln::base
