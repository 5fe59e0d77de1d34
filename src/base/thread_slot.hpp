#pragma once

#include <atomic>
#include <cstdint>

namespace kiln::base {

/// A small number of a thread's own, and the words of it that other threads may look at.
///
/// Threads belong to the process, so their numbers do: this is the one piece of state in Kiln that is not
/// owned by an object. A number below `exclusive_slots` belongs to one live thread alone, the lowest free one
/// being given out; threads beyond that share the numbers above it.
struct alignas(64) ThreadSlot {
  static constexpr std::uint32_t exclusive_slots = 32;
  static constexpr std::uint32_t shared_slots = 8;
  static constexpr std::uint32_t count = exclusive_slots + shared_slots;

  /// What the thread is letting go of at this instant; written by the owner of an exclusive slot alone.
  std::atomic<const void*> releasing{nullptr};
  /// The thread's latest time stamp in any cache; only ever used by the owner of an exclusive slot.
  std::atomic<std::uint64_t> clock{0};
};

/// The slots of the process, by number.
extern ThreadSlot thread_slots[ThreadSlot::count];

/// This thread's number, plus one; 0 until it has asked for it. Read on every hit, so at a fixed place of the
/// thread also in a shared library.
extern thread_local constinit std::uint32_t thread_slot_plus_one __attribute__((tls_model("initial-exec")));

/// Gives this thread a number, to be given back when the thread ends.
[[gnu::cold]] std::uint32_t claim_thread_slot() noexcept;

/// This thread's number.
inline std::uint32_t thread_slot() noexcept {
  const std::uint32_t known = thread_slot_plus_one;
  return known != 0 ? known - 1 : claim_thread_slot();
}

}  // namespace kiln::base
