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

std::uint64_t Resident::references_in(const Stripe& stripe) const noexcept {
  // In this order: what is returned only grows, so that zero is never seen while a handle in the stripe lives.
  const std::uint64_t returned = stripe.returned.load(std::memory_order_acquire);
  const std::int64_t elsewhere = stripe.returned_elsewhere.load(std::memory_order_acquire) >> 1;
  const std::uint64_t taken = stripe.taken.load(std::memory_order_seq_cst);
  return taken - returned - static_cast<std::uint64_t>(elsewhere);
}

Program Resident::move_in(Arrival arrival, std::uint64_t stamp) {
  digest_ = arrival.key.digest;
  bytes_ = arrival.module->bytes();
  hits_before_ = hits_ever();
  stored_.store(arrival.stored, std::memory_order_relaxed);
  gflops_.store(arrival.gflops, std::memory_order_relaxed);
  gflops_noted_.store(false, std::memory_order_relaxed);
  arrival_ = std::move(arrival);
  const std::uint32_t slot = base::thread_slot();
  for (Stripe& stripe : stripes_) stripe.last_use.store(0, std::memory_order_relaxed);
  used(slot, stamp);
  // A copy of a reference nobody had: the arrival itself is no hit.
  copy(slot);
  closing_.store(false, std::memory_order_seq_cst);
  return handle(slot);
}

bool Resident::close() noexcept {
  // Most programs in use are seen to be without the cost of a fence.
  if (references() != 0) return false;
  closing_.store(true, std::memory_order_seq_cst);
  if (asymmetric_) base::AsymmetricFence::heavy();
  const bool empty = std::all_of(std::begin(stripes_), std::end(stripes_),
                                 [this](const Stripe& stripe) { return references_in(stripe) == 0; });
  if (!empty) closing_.store(false, std::memory_order_seq_cst);
  return empty;
}

std::unique_ptr<Module> Resident::move_out() noexcept {
  arrival_.key.name.clear();
  return std::move(arrival_.module);
}

bool Resident::leave_to_handles() noexcept {
  // The owner of a slot that began to give back before the fence may not have seen abandon(): it is between
  // two stores, and done in no time. Whoever begins after it counts elsewhere.
  for (std::uint32_t slot = 0; slot < base::ThreadSlot::exclusive_slots; ++slot)
    while (base::thread_slots[slot].releasing.load(std::memory_order_acquire) == this) std::this_thread::yield();

  // Each handle still out will find the bit and count itself off; the bias keeps the count up until all stripes
  // have been added.
  constexpr std::int64_t bias = std::int64_t{1} << 60;
  outstanding_.store(bias, std::memory_order_relaxed);
  std::int64_t out = 0;
  for (Stripe& stripe : stripes_) {
    const std::int64_t elsewhere =
        stripe.returned_elsewhere.fetch_or(abandoned_bit, std::memory_order_acq_rel) >> 1;
    out += static_cast<std::int64_t>(stripe.taken.load(std::memory_order_acquire) -
                                     stripe.returned.load(std::memory_order_acquire)) -
           elsewhere;
  }
  if (outstanding_.fetch_add(out - bias, std::memory_order_acq_rel) + out - bias != 0) return true;
  arrival_.module.reset();
  return false;
}

void Resident::drop_abandoned() noexcept {
  if (outstanding_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  arrival_.module.reset();
  residence_.last_handle_gone();
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

}  // namespace kiln::memory
