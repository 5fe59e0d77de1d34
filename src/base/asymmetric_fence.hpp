#pragma once

#include <atomic>

namespace kiln::base {

/// The two sides of a fence whose cost is all on one side (P1202): light() on the side that runs all the time
/// is only a compiler's barrier, heavy() on the side that runs seldom makes every thread of the process pass a
/// full fence. A store before light() and a load after it cannot both be missed by a thread that stores, calls
/// heavy() and then loads.
class AsymmetricFence {
 public:
  /// Whether the kernel offers this (membarrier); decided for good by the first call, which prepares it.
  static bool available() noexcept;
  /// Prepares it: at once in a process of one thread, else after the kernel has waited for all of them, which takes
  /// some 10 ms. So it is done early, before drivers start threads of theirs.
  static void prepare() noexcept { static_cast<void>(available()); }

  static void light() noexcept { std::atomic_signal_fence(std::memory_order_seq_cst); }
  /// False where the kernel refuses, as it may from one day to the next under a sandbox's filter: then no thread
  /// may rely on the fence. True without further ado where light() has no users, since it is not available().
  [[nodiscard]] static bool heavy() noexcept;
};

}  // namespace kiln::base
