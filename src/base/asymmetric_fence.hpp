#pragma once

#include <atomic>

namespace kiln::base {

/// A memory fence with its whole cost on one side (P1202). light(), on the frequent side, is only a compiler
/// barrier. heavy(), on the rare side, runs a full fence on every thread of the process. If one thread stores,
/// calls light() and loads, and another thread stores, calls heavy() and loads, then at least one of the two loads
/// sees the other thread's store.
class AsymmetricFence {
 public:
  /// Whether the kernel supports the fence (membarrier). The first call registers the process and decides the
  /// answer for the process's lifetime.
  static bool available() noexcept;
  /// Registers the process early, before drivers start threads: registration is immediate in a single-threaded
  /// process, but takes about 10 ms if the kernel has to wait for other threads.
  static void prepare() noexcept { static_cast<void>(available()); }

  static void light() noexcept { std::atomic_signal_fence(std::memory_order_seq_cst); }
  /// False if the kernel refuses, which can start at any time under a sandbox filter; no thread may rely on the
  /// fence then. Always true if the fence is not available(), because then nobody uses light().
  [[nodiscard]] static bool heavy() noexcept;
};

}  // namespace kiln::base
