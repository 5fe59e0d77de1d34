#include "memory/resident.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace kiln::memory {

bool Resident::take(const Digest& digest, std::uint32_t slot) noexcept {
  if (slot < base::ThreadSlot::exclusive_slots) return take_exclusively(digest, slot);
  Stripe& stripe = stripes_[slot];
  stripe.taken.fetch_add(1, std::memory_order_seq_cst);
  if (!closing_.load(std::memory_order_seq_cst) && digest_ == digest) return true;
  stripe.taken.fetch_sub(1, std::memory_order_release);
  return false;
}

std::uint64_t Resident::references_in(const Stripe& stripe) noexcept {
  // `returned` counts only grow, and are read first, so the sum is never zero while a handle of the stripe exists.
  const std::uint64_t returned = stripe.returned.load(std::memory_order_acquire);
  const std::uint64_t elsewhere = stripe.returned_elsewhere.load(std::memory_order_seq_cst);
  const std::uint64_t taken = stripe.taken.load(std::memory_order_seq_cst);
  return taken - returned - elsewhere;
}

Program Resident::move_in(Arrival arrival, std::uint64_t stamp) {
  digest_ = arrival.key.digest;
  bytes_ = arrival.module->bytes();
  hits_before_ = hits_ever();
  stored_.store(arrival.stored, std::memory_order_relaxed);
  gflops_.store(arrival.gflops, std::memory_order_relaxed);
  gbps_.store(arrival.gbps, std::memory_order_relaxed);
  noted_.store(false, std::memory_order_relaxed);
  arrival_ = std::move(arrival);
  generation_ = base::fork_generation();
  const std::uint32_t slot = base::thread_slot.number();
  for (Stripe& stripe : stripes_) stripe.last_use.store(0, std::memory_order_relaxed);
  used(slot, stamp);
  // copy() instead of take(): an insert is not a hit.
  copy(slot);
  closing_.store(false, std::memory_order_seq_cst);
  return handle(slot);
}

void Resident::used(std::uint32_t slot, std::uint64_t stamp) noexcept {
  std::atomic<std::uint64_t>& last_use = stripes_[slot].last_use;
  std::uint64_t seen = last_use.load(std::memory_order_relaxed);
  while (seen < stamp && !last_use.compare_exchange_weak(seen, stamp, std::memory_order_relaxed)) {
  }
}

Resident::Closing Resident::close() noexcept {
  // Detects most programs in use without the cost of a fence.
  if (references() != 0) return Closing::in_use;
  closing_.store(true, std::memory_order_seq_cst);
  const bool fenced = base::AsymmetricFence::heavy();
  if (fenced && std::all_of(std::begin(stripes_), std::end(stripes_),
                            [](const Stripe& stripe) { return references_in(stripe) == 0; }))
    return Closing::closed;
  closing_.store(false, std::memory_order_seq_cst);
  return fenced ? Closing::in_use : Closing::refused;
}

std::unique_ptr<Module> Resident::move_out() noexcept {
  arrival_.key.name.clear();
  return std::move(arrival_.module);
}

void Resident::abandon() noexcept {
  closing_.store(true, std::memory_order_seq_cst);
  abandoned_.store(true, std::memory_order_seq_cst);
}

void Resident::settle() noexcept {
  // Each thread that returns a reference to an abandoned program calls this, and so does the table after its fence.
  // The last caller sees the counts of all others.
  std::unique_ptr<Module> destroyed;
  ResidentPool& pool = ResidentPool::of_process();
  const base::MutexLock lock(pool.mutex_);
  // Acquire: all takes happened before the table's destruction, so the count below includes them.
  if (!abandoned_.load(std::memory_order_acquire) || references() != 0) return;
  const bool is_parents = inherited();
  destroyed = move_out();
  if (is_parents) static_cast<void>(destroyed.release());
  abandoned_.store(false, std::memory_order_relaxed);
  pool.vacant_.push_back(this);
}

std::uint64_t Resident::references() const noexcept {
  std::uint64_t sum = 0;
  for (const Stripe& stripe : stripes_) sum += references_in(stripe);
  return sum;
}

std::uint64_t Resident::last_use() const noexcept {
  std::uint64_t latest = 0;
  for (const Stripe& stripe : stripes_) latest = std::max(latest, stripe.last_use.load(std::memory_order_relaxed));
  return latest;
}

std::uint64_t Resident::hits_ever() const noexcept {
  std::uint64_t sum = 0;
  for (const Stripe& stripe : stripes_) sum += stripe.taken.load(std::memory_order_relaxed);
  return sum;
}

ResidentPool& ResidentPool::of_process() {
  // Never destroyed: static objects release their handles during exit.
  static ResidentPool& pool = *std::make_unique<ResidentPool>().release();
  return pool;
}

Resident& ResidentPool::take() {
  const base::MutexLock lock(mutex_);
  if (vacant_.empty()) {
    // Reserve space for all residents, so that settle() never allocates.
    vacant_.reserve(residents_.size() + 1);
    return residents_.emplace_back();
  }
  Resident* resident = vacant_.back();
  vacant_.pop_back();
  return *resident;
}

}  // namespace kiln::memory
