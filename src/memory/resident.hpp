#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <kiln/backend.hpp>
#include <kiln/program.hpp>
#include <kiln/request.hpp>

#include "base/asymmetric_fence.hpp"
#include "base/mutex.hpp"
#include "base/process.hpp"
#include "base/thread_slot.hpp"

namespace kiln::memory {

/// What is known of a program when it comes into memory.
struct Arrival {
  Key key;
  std::unique_ptr<Module> module;
  Origin origin = Origin::compiled;
  std::chrono::nanoseconds compile_time{};
  double gflops = 0;
  double gbps = 0;
  bool stored = false;
};

/// One program in memory, and the count of its references.
///
/// The count is spread over stripes, one for each thread slot, so that threads on one hot program write
/// different cache lines, and the owner of a slot counts by plain stores. A handle remembers its stripe.
///
/// Closing, which comes before a program is destroyed, and taking are two sides of one asymmetric fence: either
/// the one who closes sees what was taken, or the one who takes sees `closing_` and takes it back. Once closed,
/// a stripe that has been seen without references never has one again, since copies stay in their original's
/// stripe. docs/memory.md has the argument in full.
///
/// The memory of a Resident is reused for other programs, but stays a Resident for ever: everything else in it
/// is read only by those who have taken a reference and seen it open.
class alignas(64) Resident {
 public:
  /// Takes a reference for the thread that owns `slot` if this is the open home of `digest`.
  bool take_exclusively(const Digest& digest, std::uint32_t slot) noexcept {
    Stripe& stripe = stripes_[slot];
    stripe.taken.store(stripe.taken.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    base::AsymmetricFence::light();
    if (!closing_.load(std::memory_order_seq_cst) && digest_ == digest) [[likely]]
      return true;
    stripe.taken.store(stripe.taken.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    return false;
  }

  /// The same for a thread in any slot.
  bool take(const Digest& digest, std::uint32_t slot) noexcept;

  /// Notes a use by the thread that owns `slot`.
  void used_exclusively(std::uint32_t slot, std::uint64_t stamp) noexcept {
    stripes_[slot].last_use.store(stamp, std::memory_order_relaxed);
  }
  /// The same for a thread in any slot: of the stamps of those who share one, the latest counts.
  void used(std::uint32_t slot, std::uint64_t stamp) noexcept;

  /// Gives back a reference of `stripe_number`'s, on any thread. The last one of an abandoned program destroys it.
  void give_back(std::uint32_t stripe_number) noexcept {
    Stripe& stripe = stripes_[stripe_number];
    if (stripe_number == base::thread_slot.own) [[likely]] {
      stripe.returned.store(stripe.returned.load(std::memory_order_relaxed) + 1, std::memory_order_release);
      base::AsymmetricFence::light();
    } else {
      stripe.returned_elsewhere.fetch_add(1, std::memory_order_seq_cst);
    }
    // From here on this may be another program's home, and abandoned or not: settle() looks at it anew.
    if (abandoned_.load(std::memory_order_seq_cst)) [[unlikely]]
      settle();
  }

  /// Another reference beside one that exists, in the same stripe.
  void copy(std::uint32_t stripe_number) noexcept {
    stripes_[stripe_number].returned_elsewhere.fetch_sub(1, std::memory_order_relaxed);
  }

  /// A handle on a reference that was taken.
  Program handle(std::uint32_t stripe_number) noexcept { return Program(this, stripe_number); }

  // Below: for the table alone, under its mutex.

  /// Moves a program in and opens the door; the result is the first handle on it.
  Program move_in(Arrival arrival, std::uint64_t stamp);
  /// Shuts the door if nobody is in; otherwise leaves it open. Refused: membarrier failed, so liveness is unknown.
  enum class Closing { closed, in_use, refused };
  Closing close() noexcept;
  /// Moves the program out of a closed home.
  std::unique_ptr<Module> move_out() noexcept;
  /// Shuts the door for good, the table being gone; the last handle destroys the program. All programs of a
  /// table first, then one fence, then settle().
  void abandon() noexcept;
  /// Destroys an abandoned program that nobody holds, and gives the Resident back to the pool; on any thread.
  [[gnu::cold]] void settle() noexcept;

  std::uint64_t references() const noexcept;
  std::uint64_t last_use() const noexcept;
  /// How often any program was found here, and how often the present one.
  std::uint64_t hits_ever() const noexcept;
  std::uint64_t hits() const noexcept {
    // A reader that looked at the wrong program had its step counted in, and taken back since.
    const std::uint64_t ever = hits_ever();
    return ever > hits_before_ ? ever - hits_before_ : 0;
  }
  std::size_t bytes() const noexcept { return bytes_; }
  /// Whether the program came into memory before a fork: its driver's objects are the parent's to destroy.
  bool inherited() const noexcept { return arrival_.module != nullptr && generation_ != base::fork_generation(); }
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
  double gbps() const noexcept { return gbps_.load(std::memory_order_relaxed); }
  void note_gflops(double gflops) noexcept {
    gflops_.store(gflops, std::memory_order_relaxed);
    noted_.store(true, std::memory_order_release);
  }
  void note_gbps(double gbps) noexcept {
    gbps_.store(gbps, std::memory_order_relaxed);
    noted_.store(true, std::memory_order_release);
  }
  /// The noted performance, if any was noted since this was last called.
  bool take_note() noexcept { return noted_.exchange(false, std::memory_order_acquire); }

 private:
  friend class ResidentPool;

  /// One thread slot's part in the count: references = taken − returned − returned_elsewhere.
  struct alignas(64) Stripe {
    std::atomic<std::uint64_t> taken{0};
    std::atomic<std::uint64_t> returned{0};
    std::atomic<std::uint64_t> returned_elsewhere{0};
    std::atomic<std::uint64_t> last_use{0};
  };

  static std::uint64_t references_in(const Stripe& stripe) noexcept;

  // The line every hit reads.
  Digest digest_{};
  std::atomic<bool> closing_{true};
  std::atomic<bool> abandoned_{false};

  Arrival arrival_;
  std::size_t bytes_ = 0;
  std::uint64_t generation_ = 0;
  std::uint64_t hits_before_ = 0;
  std::atomic<bool> stored_{false};
  std::atomic<bool> noted_{false};
  std::atomic<double> gflops_{0};
  std::atomic<double> gbps_{0};

  Stripe stripes_[base::ThreadSlot::count];
};

/// The memory of all Residents of the process. None is ever freed, so that a release may look at one after its
/// program, and even its table, have gone; all are used again.
class ResidentPool {
 public:
  static ResidentPool& of_process();

  /// A closed Resident without references, for a table to keep until it abandons it.
  Resident& take() KILN_EXCLUDES(mutex_);

 private:
  friend class Resident;

  base::ForkMutex mutex_{base::ForkMutex::Order::inner};
  std::deque<Resident> residents_ KILN_GUARDED_BY(mutex_);
  std::vector<Resident*> vacant_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::memory
