#pragma once

#include <cstdint>

namespace kiln::base {

/// A small number of a thread's own, and a clock.
///
/// A number below `exclusive_slots` belongs to one live thread alone, free even ones being given out first;
/// threads beyond that share the numbers above it. Where there is no AsymmetricFence all threads share: those
/// with a number of their own rely on it.
///
/// Threads belong to the process, so their numbers do, and what is counted by them: memory::ResidentPool.
struct ThreadSlot {
  static constexpr std::uint32_t exclusive_slots = 32;
  static constexpr std::uint32_t shared_slots = 8;
  static constexpr std::uint32_t count = exclusive_slots + shared_slots;
  static constexpr std::uint32_t none = count;

  /// The number that is this thread's alone, or none.
  std::uint32_t own = none;
  /// The number it shares, or none. A thread that has neither has not asked.
  std::uint32_t shared = none;
  /// The latest time stamp of this thread, or of those that had its number before it.
  std::uint64_t clock = 0;

  std::uint32_t number() noexcept { return own != none ? own : shared_number(); }

  /// In the child of a fork: frees the numbers of threads that exist only in the parent.
  static void keep_only_this_thread() noexcept;

 private:
  [[gnu::cold]] std::uint32_t shared_number() noexcept;
};

/// Read on every hit, so at a fixed place of the thread also in a shared library.
extern thread_local constinit ThreadSlot thread_slot __attribute__((tls_model("initial-exec")));

}  // namespace kiln::base
