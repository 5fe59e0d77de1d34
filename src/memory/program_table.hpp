#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <kiln/program.hpp>

#include "base/mutex.hpp"
#include "base/process.hpp"
#include "memory/resident.hpp"

namespace kiln::store {
struct UnsavedEntry;
}

namespace kiln::memory {

/// The programs in memory. find() takes no lock; everything else takes one mutex, for as long as it moves
/// pointers: modules are destroyed after it was let go. Handles outlive the table. In the child of a fork the table
/// goes on with the programs it had, counts from 0, and never destroys a module of the parent's.
class ProgramTable {
 public:
  struct Bounds {
    std::size_t programs;
    std::size_t bytes;
  };

  explicit ProgramTable(Bounds bounds);
  ~ProgramTable();
  ProgramTable(const ProgramTable&) = delete;
  ProgramTable& operator=(const ProgramTable&) = delete;

  /// The program where it is found at the first look, as nearly all are by threads with a slot of their own; or an
  /// empty handle. Short, so that it costs nothing but itself where it is inlined.
  Program find_at_once(const Digest& digest) noexcept {
    const std::uint32_t slot = base::thread_slot.own;
    if (slot != base::ThreadSlot::none) [[likely]] {
      const Index* index = index_.load(std::memory_order_acquire);
      const std::uint64_t tag = tag_of(digest);
      const Cell& cell = index->cells[index->home(tag)];
      if (cell.tag.load(std::memory_order_acquire) == tag) [[likely]] {
        Resident* resident = cell.resident.load(std::memory_order_acquire);
        if (resident->take_exclusively(digest, slot)) [[likely]] {
          resident->used_exclusively(slot, tick());
          return resident->handle(slot);
        }
      }
    }
    return {};
  }

  /// The program, or an empty handle. May miss a program while others are inserted and evicted: find_locked()
  /// decides.
  Program find(const Digest& digest) noexcept;

  /// The program, or an empty handle, for certain.
  Program find_locked(const Digest& digest) KILN_EXCLUDES(mutex_);
  /// The same, without counting a hit or a use.
  Program find_uncounted(const Digest& digest) KILN_EXCLUDES(mutex_);

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
  void keep_unsaved(const Digest& digest, std::shared_ptr<const store::UnsavedEntry> entry) KILN_EXCLUDES(mutex_);

  struct Unsaved {
    Key key;
    std::shared_ptr<const store::UnsavedEntry> entry;
  };
  /// What keep_unsaved() kept; it is the caller's now.
  std::vector<Unsaved> take_unsaved() KILN_EXCLUDES(mutex_);

  struct Note {
    Digest digest;
    double gflops;
    double gbps;
  };
  /// The performance noted on programs that were evicted since the last call; of many, the last max_notes.
  std::vector<Note> take_notes_of_evicted() KILN_EXCLUDES(mutex_);
  /// The same, and that noted on programs in memory since the last call of this.
  std::vector<Note> take_notes() KILN_EXCLUDES(mutex_);
  static constexpr std::size_t max_notes = 2048;

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
  /// A place of the open-addressed index. Empty: tag 0; its resident is whoever was last here. Readers may see a
  /// tag and a resident that do not belong together; Resident::take() finds out.
  struct Cell {
    std::atomic<std::uint64_t> tag{0};
    std::atomic<Resident*> resident{nullptr};
  };
  struct Index {
    explicit Index(std::size_t size) : mask(size - 1), cells(std::make_unique<Cell[]>(size)) {}
    /// Where the search for a tag begins; its lowest bit is always set, and says nothing.
    std::size_t home(std::uint64_t tag) const noexcept { return (tag >> 1) & mask; }
    std::size_t mask;
    std::unique_ptr<Cell[]> cells;
  };

  static std::uint64_t tag_of(const Digest& digest) noexcept { return digest.word(0) | 1; }

  /// A time stamp later than all this thread has seen, and than any program that was inserted before.
  std::uint64_t tick() noexcept {
    const std::uint64_t own = base::thread_slot.clock + 1;
    const std::uint64_t common = clock_.load(std::memory_order_relaxed);
    return base::thread_slot.clock = own > common ? own : common;
  }

  Resident* take_vacant() KILN_REQUIRES(mutex_);
  Cell* cell_of(const Digest& digest) KILN_REQUIRES(mutex_);
  static void place(Index& index, Resident* resident);
  void grow() KILN_REQUIRES(mutex_);
  void erase(Cell* cell) KILN_REQUIRES(mutex_);
  /// Removes a program that was closed; its module is the caller's to destroy without the mutex. Null where it was
  /// inherited through fork().
  std::unique_ptr<Module> move_out(Resident* resident) KILN_REQUIRES(mutex_);
  /// Closes and removes the least recently used program not in use; nothing where there is none.
  std::optional<std::unique_ptr<Module>> evict_oldest() KILN_REQUIRES(mutex_);
  /// In the child of a fork: counts from here. What the parent noted and counted is the parent's to save.
  void begin_child() KILN_REQUIRES(mutex_);
  bool over_bounds() const KILN_REQUIRES(mutex_);

  const Bounds bounds_;
  std::atomic<Index*> index_{nullptr};
  std::atomic<std::uint64_t> clock_{0};

  // All that were ever taken from the pool: a reader may still look at any of them.
  std::vector<Resident*> residents_ KILN_GUARDED_BY(mutex_);
  std::vector<Resident*> vacant_ KILN_GUARDED_BY(mutex_);
  // What the residents had counted for the tables before this one.
  std::uint64_t hits_before_ KILN_GUARDED_BY(mutex_) = 0;
  // All indexes there ever were: a reader may still be in an old one. Each is twice the size of the one before.
  std::vector<std::unique_ptr<Index>> indexes_ KILN_GUARDED_BY(mutex_);
  // By the last use known when a program was placed here; the true one may be later, never earlier.
  std::set<std::pair<std::uint64_t, Resident*>> order_ KILN_GUARDED_BY(mutex_);
  std::map<Digest, std::shared_ptr<const store::UnsavedEntry>> unsaved_ KILN_GUARDED_BY(mutex_);
  std::deque<Note> notes_of_evicted_ KILN_GUARDED_BY(mutex_);
  std::size_t bytes_ KILN_GUARDED_BY(mutex_) = 0;
  std::uint64_t evictions_ KILN_GUARDED_BY(mutex_) = 0;
  std::uint64_t bound_exceeded_ KILN_GUARDED_BY(mutex_) = 0;

  // Locked by fork(): a child goes on with the table as it is. Last, since begin_child() uses everything above.
  base::ForkMutex mutex_{base::ForkMutex::Order::outer,
                         [this]() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) { begin_child(); }};
};

}  // namespace kiln::memory
