#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <kiln/program.hpp>
#include <kiln/store.hpp>

#include "base/mutex.hpp"
#include "memory/resident.hpp"

namespace kiln::memory {

/// The programs in memory. find() takes no lock; everything else takes one mutex, for as long as it moves
/// pointers: modules are destroyed after it was let go. Handles outlive the table.
class ProgramTable {
 public:
  struct Bounds {
    std::size_t programs;
    std::size_t bytes;
  };

  explicit ProgramTable(Bounds bounds, bool asymmetric = base::AsymmetricFence::available());
  ~ProgramTable();
  ProgramTable(const ProgramTable&) = delete;
  ProgramTable& operator=(const ProgramTable&) = delete;

  /// The program, or an empty handle. May miss a program while others are inserted and evicted: find_locked()
  /// decides.
  Program find(const Digest& digest) noexcept {
    const std::uint32_t slot = base::thread_slot_plus_one - 1;
    if (slot >= base::ThreadSlot::exclusive_slots) [[unlikely]]
      return find_with_any_slot(digest);
    return find_by(digest, slot, [&](Resident* resident) { return resident->take_exclusively(digest, slot); });
  }

  /// The program, or an empty handle, for certain.
  Program find_locked(const Digest& digest) KILN_EXCLUDES(mutex_);

  /// Moves a program in, whose key is not in the table, and evicts what the bounds ask for.
  Program insert(Arrival arrival) KILN_EXCLUDES(mutex_);
  /// Drops the program unless it is in use or not there; whether it went.
  bool evict(const Digest& digest) KILN_EXCLUDES(mutex_);
  /// Evicts unused programs, least recently used first, until `keep` are left; how many went.
  std::size_t trim(std::size_t keep) KILN_EXCLUDES(mutex_);
  /// Evicts the least recently used unused program; whether there was one.
  bool evict_one() KILN_EXCLUDES(mutex_);

  void mark_stored(const Digest& digest) KILN_EXCLUDES(mutex_);
  /// Keeps the binary of a program that was not saved, as long as the program is in memory.
  void keep_unsaved(const Digest& digest, std::shared_ptr<const Entry> entry) KILN_EXCLUDES(mutex_);

  struct Unsaved {
    Key key;
    std::shared_ptr<const Entry> entry;
  };
  /// What keep_unsaved() kept; it is the caller's now.
  std::vector<Unsaved> take_unsaved() KILN_EXCLUDES(mutex_);

  struct Note {
    Key key;
    double gflops;
  };
  /// The performance noted on stored programs since the last call.
  std::vector<Note> take_notes() KILN_EXCLUDES(mutex_);

  /// The programs, least recently used first.
  std::vector<ProgramInfo> list() KILN_EXCLUDES(mutex_);

  struct Totals {
    std::uint64_t hits = 0;
    std::uint64_t evictions = 0;
    std::uint64_t bound_exceeded = 0;
    std::size_t programs = 0;
    std::size_t bytes = 0;
  };
  Totals totals() KILN_EXCLUDES(mutex_);

 private:
  /// A place of the open-addressed index. Empty: tag 0. Readers may see a tag and a resident that do not belong
  /// together; Resident::take() finds out.
  struct Cell {
    std::atomic<std::uint64_t> tag{0};
    std::atomic<Resident*> resident{nullptr};
  };
  struct Index {
    explicit Index(std::size_t size) : mask(size - 1), cells(std::make_unique<Cell[]>(size)) {}
    std::size_t mask;
    std::unique_ptr<Cell[]> cells;
  };
  class Home;

  /// Looks for the digest in the index; `take` tells whether a resident with its tag is the one, and is now held.
  template <class Take>
  Program find_by(const Digest& digest, std::uint32_t slot, Take take) noexcept {
    const Index* index = index_.load(std::memory_order_acquire);
    const std::uint64_t tag = digest.word(0) | 1;
    for (std::size_t i = tag & index->mask, probes = 0; probes <= index->mask;
         i = (i + 1) & index->mask, ++probes) {
      const Cell& cell = index->cells[i];
      const std::uint64_t seen = cell.tag.load(std::memory_order_relaxed);
      if (seen == 0) break;
      if (seen != tag) continue;
      Resident* resident = cell.resident.load(std::memory_order_acquire);
      if (resident == nullptr || !take(resident)) continue;
      resident->used(slot, tick(slot));
      return resident->handle(slot);
    }
    return {};
  }
  /// For threads that share a slot, or have none yet.
  [[gnu::cold]] Program find_with_any_slot(const Digest& digest) noexcept;

  /// A time stamp later than all this thread has seen, and than any program that was inserted before.
  std::uint64_t tick(std::uint32_t slot) noexcept {
    std::atomic<std::uint64_t>& mine = base::thread_slots[slot].clock;
    const std::uint64_t own = mine.load(std::memory_order_relaxed);
    const std::uint64_t common = clock_.load(std::memory_order_relaxed);
    const std::uint64_t now = (own > common ? own : common) + 1;
    mine.store(now, std::memory_order_relaxed);
    return now;
  }

  Cell* cell_of(const Digest& digest) KILN_REQUIRES(mutex_);
  static void place(Index& index, Resident* resident);
  void grow() KILN_REQUIRES(mutex_);
  void erase(Cell* cell) KILN_REQUIRES(mutex_);
  /// Removes a program that was closed; its module is the caller's to destroy without the mutex.
  std::unique_ptr<Module> move_out(Resident* resident) KILN_REQUIRES(mutex_);
  /// Closes and removes the least recently used program not in use; null where there is none.
  std::unique_ptr<Module> evict_oldest() KILN_REQUIRES(mutex_);
  bool over_bounds() const KILN_REQUIRES(mutex_);

  const Bounds bounds_;
  const bool asymmetric_;
  std::atomic<Index*> index_{nullptr};
  std::atomic<std::uint64_t> clock_{0};

  base::Mutex mutex_;
  Home* home_;
  // All indexes there ever were: a reader may still be in an old one. Each is twice the size of the one before.
  std::vector<std::unique_ptr<Index>> indexes_ KILN_GUARDED_BY(mutex_);
  // By the last use known when a program was placed here; the true one may be later, never earlier.
  std::set<std::pair<std::uint64_t, Resident*>> order_ KILN_GUARDED_BY(mutex_);
  std::map<Digest, std::shared_ptr<const Entry>> unsaved_ KILN_GUARDED_BY(mutex_);
  std::vector<Note> notes_of_evicted_ KILN_GUARDED_BY(mutex_);
  std::size_t bytes_ KILN_GUARDED_BY(mutex_) = 0;
  std::uint64_t evictions_ KILN_GUARDED_BY(mutex_) = 0;
  std::uint64_t bound_exceeded_ KILN_GUARDED_BY(mutex_) = 0;
};

}  // namespace kiln::memory
