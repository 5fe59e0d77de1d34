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

/// The programs in memory. find() takes no lock. All other functions hold one mutex only while they move pointers;
/// modules are destroyed after it is released. Handles may outlive the table. In a forked child the table keeps its
/// programs, its counters restart at 0, and it never destroys a module that the parent loaded.
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

  /// The program if the first probe finds it, which is the usual case for threads with an exclusive slot; otherwise
  /// an empty handle. Short enough to inline.
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

  /// The program, or an empty handle. May miss a program during concurrent inserts and evictions; confirm a miss
  /// with find_locked().
  Program find(const Digest& digest) noexcept;

  /// The program, or an empty handle. Never misses a program.
  Program find_locked(const Digest& digest) KILN_EXCLUDES(mutex_);
  /// The same, without counting a hit or a use.
  Program find_uncounted(const Digest& digest) KILN_EXCLUDES(mutex_);

  /// Inserts a program whose key is not in the table, and evicts others as the bounds require.
  Program insert(Arrival arrival) KILN_EXCLUDES(mutex_);
  /// Evicts the program unless it is in use; returns whether it was evicted.
  bool evict(const Digest& digest) KILN_EXCLUDES(mutex_);
  /// Evicts unused programs, least recently used first, until `keep` are left; returns the number evicted.
  std::size_t trim(std::size_t keep) KILN_EXCLUDES(mutex_);
  /// Evicts the least recently used program that is not in use; returns whether there was one.
  bool evict_one() KILN_EXCLUDES(mutex_);

  void mark_stored(const Digest& digest) KILN_EXCLUDES(mutex_);
  /// Keeps the binary of a program that could not be saved, until the program is evicted.
  void keep_unsaved(const Digest& digest, std::shared_ptr<const store::UnsavedEntry> entry) KILN_EXCLUDES(mutex_);

  struct Unsaved {
    Key key;
    std::shared_ptr<const store::UnsavedEntry> entry;
  };
  /// Returns and forgets all entries of keep_unsaved().
  std::vector<Unsaved> take_unsaved() KILN_EXCLUDES(mutex_);

  struct Note {
    Digest digest;
    double gflops;
    double gbps;
  };
  /// Returns and forgets the performance noted on programs evicted since the last call; at most the last max_notes.
  std::vector<Note> take_notes_of_evicted() KILN_EXCLUDES(mutex_);
  /// The same, and the performance noted on programs in memory since the last call.
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
  /// A cell of the open-addressed index. Tag 0 means empty; `resident` is then stale. A reader may see a tag and a
  /// resident that do not match; Resident::take() detects this.
  struct Cell {
    std::atomic<std::uint64_t> tag{0};
    std::atomic<Resident*> resident{nullptr};
  };
  struct Index {
    explicit Index(std::size_t size) : mask(size - 1), cells(std::make_unique<Cell[]>(size)) {}
    /// The first cell to probe for a tag. Ignores the tag's lowest bit, which is always set.
    std::size_t home(std::uint64_t tag) const noexcept { return (tag >> 1) & mask; }
    std::size_t mask;
    std::unique_ptr<Cell[]> cells;
  };

  static std::uint64_t tag_of(const Digest& digest) noexcept { return digest.word(0) | 1; }

  /// A time stamp later than all earlier ones of this thread and of earlier inserts.
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
  /// Removes a closed program. The caller destroys the module after releasing the mutex. Null if the module was
  /// inherited through fork().
  std::unique_ptr<Module> move_out(Resident* resident) KILN_REQUIRES(mutex_);
  /// Closes and removes the least recently used program that is not in use; nothing if there is none.
  std::optional<std::unique_ptr<Module>> evict_oldest() KILN_REQUIRES(mutex_);
  /// In a forked child: restarts the counters and drops the notes, because the parent saves its own.
  void begin_child() KILN_REQUIRES(mutex_);
  bool over_bounds() const KILN_REQUIRES(mutex_);

  const Bounds bounds_;
  std::atomic<Index*> index_{nullptr};
  std::atomic<std::uint64_t> clock_{0};

  // All that this table took from the pool; never shrinks, because a reader may still access any of them.
  std::vector<Resident*> residents_ KILN_GUARDED_BY(mutex_);
  std::vector<Resident*> vacant_ KILN_GUARDED_BY(mutex_);
  // Hits that the residents counted for earlier tables.
  std::uint64_t hits_before_ KILN_GUARDED_BY(mutex_) = 0;
  // All indexes so far, because a reader may still use an old one. Each is twice the size of its predecessor.
  std::vector<std::unique_ptr<Index>> indexes_ KILN_GUARDED_BY(mutex_);
  // Ordered by the last use known when a program was placed here; the actual last use may be later.
  std::set<std::pair<std::uint64_t, Resident*>> order_ KILN_GUARDED_BY(mutex_);
  std::map<Digest, std::shared_ptr<const store::UnsavedEntry>> unsaved_ KILN_GUARDED_BY(mutex_);
  std::deque<Note> notes_of_evicted_ KILN_GUARDED_BY(mutex_);
  std::size_t bytes_ KILN_GUARDED_BY(mutex_) = 0;
  std::uint64_t evictions_ KILN_GUARDED_BY(mutex_) = 0;
  std::uint64_t bound_exceeded_ KILN_GUARDED_BY(mutex_) = 0;

  // fork() locks it, so that a child inherits a consistent table. Declared last, because begin_child() uses all
  // members above.
  base::ForkMutex mutex_{base::ForkMutex::Order::outer,
                         [this]() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) { begin_child(); }};
};

}  // namespace kiln::memory
