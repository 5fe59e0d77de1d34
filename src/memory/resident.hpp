#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include <kiln/backend.hpp>
#include <kiln/program.hpp>
#include <kiln/request.hpp>

#include "base/asymmetric_fence.hpp"
#include "base/thread_slot.hpp"

namespace kiln::memory {

/// What is known of a program when it comes into memory.
struct Arrival {
  Key key;
  std::unique_ptr<Module> module;
  Origin origin = Origin::compiled;
  std::chrono::nanoseconds compile_time{};
  double gflops = 0;
  bool stored = false;
};

/// Whoever frees the memory of residents that outlived their table.
class Residence {
 public:
  virtual void last_handle_gone() noexcept = 0;

 protected:
  ~Residence() = default;
};

/// One program in memory, and the count of its references.
///
/// The count is spread over stripes, one for each thread slot, so that threads on one hot program write
/// different cache lines, and the owner of a slot counts by plain stores. A handle remembers its stripe. In
/// each stripe, references = taken − returned − returned_elsewhere.
///
/// Closing, which comes before a program is destroyed, and taking are two sides of one asymmetric fence: either
/// the one who closes sees what was taken, or the one who takes sees `closing_` and takes it back. Once closed,
/// a stripe that has been seen without references never has one again, since copies stay in their original's
/// stripe. docs/memory.md has the argument in full.
///
/// The memory of a Resident is reused for other programs, but stays a Resident as long as a reader may look at
/// it: everything else is read only by those who have taken a reference and seen it open.
class alignas(64) Resident {
 public:
  Resident(Residence& residence, bool asymmetric) : asymmetric_(asymmetric), residence_(residence) {}

  /// Takes a reference for the thread that owns `slot` if this is the open home of `digest`.
  bool take_exclusively(const Digest& digest, std::uint32_t slot) noexcept {
    Stripe& stripe = stripes_[slot];
    const std::uint64_t taken = stripe.taken.load(std::memory_order_relaxed);
    if (asymmetric_) {
      stripe.taken.store(taken + 1, std::memory_order_relaxed);
      base::AsymmetricFence::light();
    } else {
      stripe.taken.store(taken + 1, std::memory_order_seq_cst);
    }
    if (!closing_.load(std::memory_order_seq_cst) && digest_ == digest) [[likely]]
      return true;
    stripe.taken.store(taken, std::memory_order_release);
    return false;
  }

  /// The same for a thread in any slot.
  bool take(const Digest& digest, std::uint32_t slot) noexcept;

  /// Notes a use by the thread in `slot`.
  void used(std::uint32_t slot, std::uint64_t stamp) noexcept {
    stripes_[slot].last_use.store(stamp, std::memory_order_relaxed);
  }

  /// Gives back a reference of `stripe_number`'s, on any thread. The last one of an abandoned program destroys it.
  void give_back(std::uint32_t stripe_number) noexcept {
    Stripe& stripe = stripes_[stripe_number];
    if (asymmetric_ && stripe_number + 1 == base::thread_slot_plus_one &&
        stripe_number < base::ThreadSlot::exclusive_slots) [[likely]] {
      base::ThreadSlot& slot = base::thread_slots[stripe_number];
      slot.releasing.store(this, std::memory_order_release);
      base::AsymmetricFence::light();
      if (!abandoned_.load(std::memory_order_acquire)) [[likely]] {
        stripe.returned.store(stripe.returned.load(std::memory_order_relaxed) + 1, std::memory_order_release);
        slot.releasing.store(nullptr, std::memory_order_release);
        return;
      }
      slot.releasing.store(nullptr, std::memory_order_release);
    }
    if ((stripe.returned_elsewhere.fetch_add(one_elsewhere, std::memory_order_acq_rel) & abandoned_bit) != 0)
      drop_abandoned();
  }

  /// Another reference beside one that exists, in the same stripe.
  void copy(std::uint32_t stripe_number) noexcept {
    const std::int64_t before =
        stripes_[stripe_number].returned_elsewhere.fetch_sub(one_elsewhere, std::memory_order_acquire);
    if ((before & abandoned_bit) != 0) outstanding_.fetch_add(1, std::memory_order_relaxed);
  }

  /// A handle on a reference that was taken.
  Program handle(std::uint32_t stripe_number) noexcept { return Program(this, stripe_number); }

  // Below: for the table alone, under its mutex.

  /// Moves a program in and opens the door; the result is the first handle on it.
  Program move_in(Arrival arrival, std::uint64_t stamp);
  /// Shuts the door if nobody is in; otherwise leaves it open.
  bool close() noexcept;
  /// Moves the program out of a closed home.
  std::unique_ptr<Module> move_out() noexcept;
  /// Marks the program as one whose table is gone; all of them first, then one fence, then
  /// leave_to_handles().
  void abandon() noexcept { abandoned_.store(true, std::memory_order_seq_cst); }
  /// Leaves the program to the handles on it; false, and it is destroyed, where there are none.
  bool leave_to_handles() noexcept;

  std::uint64_t references() const noexcept;
  std::uint64_t last_use() const noexcept;
  /// How often any program was found here, and how often the present one.
  std::uint64_t hits_ever() const noexcept;
  std::uint64_t hits() const noexcept { return hits_ever() - hits_before_; }
  std::size_t bytes() const noexcept { return bytes_; }
  /// Where the table has it in its order of eviction.
  std::uint64_t place = 0;

  // For those who hold a reference, and the table.
  const Key& key() const noexcept { return arrival_.key; }
  Module& module() const noexcept { return *arrival_.module; }
  Origin origin() const noexcept { return arrival_.origin; }
  std::chrono::nanoseconds compile_time() const noexcept { return arrival_.compile_time; }
  bool stored() const noexcept { return stored_.load(std::memory_order_relaxed); }
  void set_stored() noexcept { stored_.store(true, std::memory_order_relaxed); }
  double gflops() const noexcept { return gflops_.load(std::memory_order_relaxed); }
  void note_gflops(double gflops) noexcept {
    gflops_.store(gflops, std::memory_order_relaxed);
    gflops_noted_.store(true, std::memory_order_release);
  }
  /// The noted performance, if any was noted since this was last called.
  bool take_gflops_note() noexcept { return gflops_noted_.exchange(false, std::memory_order_acquire); }

 private:
  // returned_elsewhere counts in steps of two; its lowest bit says that the program was abandoned.
  static constexpr std::int64_t one_elsewhere = 2;
  static constexpr std::int64_t abandoned_bit = 1;

  struct alignas(64) Stripe {
    std::atomic<std::uint64_t> taken{0};
    std::atomic<std::uint64_t> returned{0};
    std::atomic<std::int64_t> returned_elsewhere{0};
    std::atomic<std::uint64_t> last_use{0};
  };

  std::uint64_t references_in(const Stripe& stripe) const noexcept;
  void drop_abandoned() noexcept;

  // The line every hit reads.
  Digest digest_{};
  std::atomic<bool> closing_{true};
  std::atomic<bool> abandoned_{false};
  const bool asymmetric_;
  Residence& residence_;

  Arrival arrival_;
  std::size_t bytes_ = 0;
  std::uint64_t hits_before_ = 0;
  std::atomic<bool> stored_{false};
  std::atomic<bool> gflops_noted_{false};
  std::atomic<double> gflops_{0};
  // Handles left on an abandoned program.
  std::atomic<std::int64_t> outstanding_{0};

  Stripe stripes_[base::ThreadSlot::count];
};

}  // namespace kiln::memory
