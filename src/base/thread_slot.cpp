#include "base/thread_slot.hpp"

#include <bit>

namespace kiln::base {
namespace {

static_assert(ThreadSlot::exclusive_slots == 32, "the numbers given out are the bits of one word");

std::atomic<std::uint32_t> taken{0};
std::atomic<std::uint32_t> sharers{0};

std::uint32_t next_shared_slot() noexcept {
  return ThreadSlot::exclusive_slots + sharers.fetch_add(1, std::memory_order_relaxed) % ThreadSlot::shared_slots;
}

/// Gives the number back when the thread ends. What runs on the thread after that, such as the destructors of
/// other thread-local objects, goes by a shared number.
struct Claim {
  std::uint32_t slot;

  ~Claim() {
    thread_slot_plus_one = next_shared_slot() + 1;
    // Release: the next owner continues where this one stopped.
    if (slot < ThreadSlot::exclusive_slots) taken.fetch_and(~(1U << slot), std::memory_order_release);
  }
};

}  // namespace

constinit ThreadSlot thread_slots[ThreadSlot::count];
thread_local constinit std::uint32_t thread_slot_plus_one = 0;

std::uint32_t claim_thread_slot() noexcept {
  std::uint32_t seen = taken.load(std::memory_order_relaxed);
  std::uint32_t slot = ThreadSlot::exclusive_slots;
  while (~seen != 0) {
    const auto free = static_cast<std::uint32_t>(std::countr_one(seen));
    if (taken.compare_exchange_weak(seen, seen | (1U << free), std::memory_order_acquire,
                                    std::memory_order_relaxed)) {
      slot = free;
      break;
    }
  }
  if (slot == ThreadSlot::exclusive_slots) slot = next_shared_slot();
  static thread_local const Claim claim{slot};
  thread_slot_plus_one = slot + 1;
  return slot;
}

}  // namespace kiln::base
