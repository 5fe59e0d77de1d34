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

/// A program to insert into memory.
struct Arrival {
  Key key;
  std::unique_ptr<Module> module;
  Origin origin = Origin::compiled;
  std::chrono::nanoseconds compile_time{};
  double gflops = 0;
  double gbps = 0;
  bool stored = false;
};

/// One program in memory, and its reference count.
///
/// The count is split into stripes, one per thread slot. Threads that use the same program write to different cache
/// lines, and the owner of a slot counts with plain stores. A handle remembers its stripe.
///
/// close(), which precedes destruction, and take() are the two sides of an asymmetric fence: either close() sees
/// the new reference, or take() sees `closing_` and gives the reference back. Copies count in the stripe of their
/// original, so once a program is closed, a stripe without references never gets one. docs/memory.md has the full
/// argument.
///
/// The memory of a Resident is reused for other programs but always remains a Resident. Other members are read only
/// by threads that hold a reference to an open program.
class alignas(64) Resident {
 public:
  /// Takes a reference for the thread that owns `slot`, if this holds the program `digest` and is open.
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

  /// Records a use by the thread that owns `slot`.
  void used_exclusively(std::uint32_t slot, std::uint64_t stamp) noexcept {
    stripes_[slot].last_use.store(stamp, std::memory_order_relaxed);
  }
  /// The same for a thread in any slot. If threads share the slot, the latest stamp counts.
  void used(std::uint32_t slot, std::uint64_t stamp) noexcept;

  /// Returns a reference of a stripe; safe on any thread. Returning the last reference to an abandoned program
  /// destroys it.
  void give_back(std::uint32_t stripe_number) noexcept {
    Stripe& stripe = stripes_[stripe_number];
    if (stripe_number == base::thread_slot.own) [[likely]] {
      stripe.returned.store(stripe.returned.load(std::memory_order_relaxed) + 1, std::memory_order_release);
      base::AsymmetricFence::light();
    } else {
      stripe.returned_elsewhere.fetch_add(1, std::memory_order_seq_cst);
    }
    // From here on this may hold another program, abandoned or not; settle() checks again under the pool's mutex.
    if (abandoned_.load(std::memory_order_seq_cst)) [[unlikely]]
      settle();
  }

  /// Adds a reference to the stripe of an existing reference.
  void copy(std::uint32_t stripe_number) noexcept {
    stripes_[stripe_number].returned_elsewhere.fetch_sub(1, std::memory_order_relaxed);
  }

  /// Wraps a reference that was taken.
  Program handle(std::uint32_t stripe_number) noexcept { return Program(this, stripe_number); }

  // Below: only for the table, under its mutex.

  /// Stores a program, opens it for take(), and returns its first handle.
  Program move_in(Arrival arrival, std::uint64_t stamp);
  /// Closes the program if it has no references; otherwise it stays open. Refused: membarrier failed, so liveness
  /// is unknown.
  enum class Closing { closed, in_use, refused };
  Closing close() noexcept;
  /// Removes a closed program and returns its module.
  std::unique_ptr<Module> move_out() noexcept;
  /// Closes the program permanently when its table is destroyed; returning the last handle then destroys it. The
  /// table abandons all its programs, fences once, and then calls settle() on each.
  void abandon() noexcept;
  /// Destroys an abandoned program without references and returns the Resident to the pool; safe on any thread.
  [[gnu::cold]] void settle() noexcept;

  std::uint64_t references() const noexcept;
  std::uint64_t last_use() const noexcept;
  /// Hits of all programs that this Resident ever held, and of the current one.
  std::uint64_t hits_ever() const noexcept;
  std::uint64_t hits() const noexcept {
    // A failed take() increments the count briefly, so hits_before_ can be too large.
    const std::uint64_t ever = hits_ever();
    return ever > hits_before_ ? ever - hits_before_ : 0;
  }
  std::size_t bytes() const noexcept { return bytes_; }
  /// Whether the program was loaded before a fork: only the parent may destroy its driver objects.
  bool inherited() const noexcept { return arrival_.module != nullptr && generation_ != base::fork_generation(); }
  /// Position in the table's eviction order.
  std::uint64_t place = 0;

  // For holders of a reference, and for the table.
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
  /// Whether performance was noted since the last call.
  bool take_note() noexcept { return noted_.exchange(false, std::memory_order_acquire); }

 private:
  friend class ResidentPool;

  /// The counts of one thread slot: references = taken − returned − returned_elsewhere.
  struct alignas(64) Stripe {
    std::atomic<std::uint64_t> taken{0};
    std::atomic<std::uint64_t> returned{0};
    std::atomic<std::uint64_t> returned_elsewhere{0};
    std::atomic<std::uint64_t> last_use{0};
  };

  static std::uint64_t references_in(const Stripe& stripe) noexcept;

  // The cache line that every hit reads.
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

/// The Residents of the process. They are reused but never freed, because a release may access one after its
/// program and even its table are gone.
class ResidentPool {
 public:
  static ResidentPool& of_process();

  /// A closed Resident without references; the table keeps it until it abandons it.
  Resident& take() KILN_EXCLUDES(mutex_);

 private:
  friend class Resident;

  base::ForkMutex mutex_{base::ForkMutex::Order::inner};
  std::deque<Resident> residents_ KILN_GUARDED_BY(mutex_);
  std::vector<Resident*> vacant_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::memory
