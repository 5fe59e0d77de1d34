#include "base/thread_slot.hpp"

#include <atomic>
#include <bit>

#include "base/asymmetric_fence.hpp"

namespace kiln::base {
namespace {

static_assert(ThreadSlot::exclusive_slots == 32, "the numbers given out are the bits of one word");

std::atomic<std::uint32_t> taken{0};
std::atomic<std::uint32_t> sharers{0};
/// The clock of each slot's last owner. Only the current owner accesses it.
std::uint64_t clocks[ThreadSlot::exclusive_slots];

/// Claims a free slot; none if all are taken.
std::uint32_t claim() noexcept {
  std::uint32_t seen = AsymmetricFence::available() ? taken.load(std::memory_order_relaxed) : ~std::uint32_t{0};
  while (~seen != 0) {
    // Even slots first: processors prefetch cache lines in pairs, and this keeps a few threads on separate pairs.
    constexpr std::uint32_t odd = 0xaaaaaaaa;
    const std::uint32_t set_aside = (seen | odd) != ~std::uint32_t{0} ? odd : 0;
    const auto free = static_cast<std::uint32_t>(std::countr_one(seen | set_aside));
    // Acquire: the new owner continues from its predecessor's counts.
    if (taken.compare_exchange_weak(seen, seen | (1U << free), std::memory_order_acquire,
                                    std::memory_order_relaxed))
      return free;
  }
  return ThreadSlot::none;
}

std::uint32_t next_shared() noexcept {
  return ThreadSlot::exclusive_slots + sharers.fetch_add(1, std::memory_order_relaxed) % ThreadSlot::shared_slots;
}

/// Releases the slot when the thread ends. Code that runs on the thread later, for example destructors of other
/// thread-local objects, uses a shared slot.
struct GiveBack {
  ~GiveBack() {
    clocks[thread_slot.own] = thread_slot.clock;
    const std::uint32_t number = thread_slot.own;
    thread_slot.own = ThreadSlot::none;
    thread_slot.shared = next_shared();
    taken.fetch_and(~(1U << number), std::memory_order_release);
  }
};

}  // namespace

thread_local constinit ThreadSlot thread_slot;

std::uint32_t ThreadSlot::shared_number() noexcept {
  if (shared != none) return shared;
  own = claim();
  if (own == none) return shared = next_shared();
  clock = clocks[own];
  static thread_local const GiveBack give_back;
  return own;
}

void ThreadSlot::keep_only_this_thread() noexcept {
  taken.store(thread_slot.own != none ? 1U << thread_slot.own : 0, std::memory_order_relaxed);
}

}  // namespace kiln::base
