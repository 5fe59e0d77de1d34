#include "memory/program_table.hpp"

#include <algorithm>
#include <utility>

namespace kiln::memory {

ProgramTable::ProgramTable(Bounds bounds) : bounds_(bounds) {
  // Done here rather than in a first get(), where it would add latency. This also creates the pool's mutex before
  // any thread holds the table's.
  base::AsymmetricFence::prepare();
  ResidentPool::of_process();
  indexes_.push_back(std::make_unique<Index>(256));
  index_.store(indexes_.back().get(), std::memory_order_release);
}

ProgramTable::~ProgramTable() {
  std::vector<Resident*> residents;
  {
    const base::MutexLock lock(mutex_);
    residents = residents_;
  }
  std::erase_if(residents, [](const Resident* resident) { return resident->inherited(); });
  for (Resident* resident : residents) resident->abandon();
  // If the fence fails, reference counts are unreliable, so unused programs leak.
  if (!base::AsymmetricFence::heavy()) return;
  for (Resident* resident : residents) resident->settle();
}

Program ProgramTable::find(const Digest& digest) noexcept {
  const Index* index = index_.load(std::memory_order_acquire);
  const std::uint64_t tag = tag_of(digest);
  const std::uint32_t slot = base::thread_slot.number();
  for (std::size_t i = index->home(tag);; i = (i + 1) & index->mask) {
    const Cell& cell = index->cells[i];
    const std::uint64_t seen = cell.tag.load(std::memory_order_acquire);
    if (seen == 0) return {};
    if (seen != tag) continue;
    Resident* resident = cell.resident.load(std::memory_order_acquire);
    if (!resident->take(digest, slot)) continue;
    resident->used(slot, tick());
    return resident->handle(slot);
  }
}

Program ProgramTable::find_locked(const Digest& digest) {
  const base::MutexLock lock(mutex_);
  const Cell* cell = cell_of(digest);
  if (cell == nullptr) return {};
  Resident* resident = cell->resident.load(std::memory_order_relaxed);
  const std::uint32_t slot = base::thread_slot.number();
  // close() runs only under this mutex.
  if (!resident->take(digest, slot)) return {};
  resident->used(slot, tick());
  return resident->handle(slot);
}

Program ProgramTable::find_uncounted(const Digest& digest) {
  const base::MutexLock lock(mutex_);
  const Cell* cell = cell_of(digest);
  if (cell == nullptr) return {};
  Resident* resident = cell->resident.load(std::memory_order_relaxed);
  const std::uint32_t slot = base::thread_slot.number();
  // close() runs only under this mutex, so the program stays although this may be its only reference.
  resident->copy(slot);
  return resident->handle(slot);
}

Program ProgramTable::insert(Arrival arrival) {
  std::vector<std::unique_ptr<Module>> evicted;
  const base::MutexLock lock(mutex_);
  if (4 * (order_.size() + 1) > indexes_.back()->mask) grow();
  // Before the first tick(), because the slot provides the thread's clock.
  base::thread_slot.number();
  const std::uint64_t now = tick();
  clock_.store(std::max(now + 1, clock_.load(std::memory_order_relaxed)), std::memory_order_relaxed);

  Resident* resident = take_vacant();
  Program program = resident->move_in(std::move(arrival), now);
  resident->place = now;
  order_.emplace(now, resident);
  bytes_ += resident->bytes();
  place(*indexes_.back(), resident);

  while (over_bounds()) {
    auto module = evict_oldest();
    if (!module) {
      ++bound_exceeded_;
      break;
    }
    evicted.push_back(std::move(*module));
  }
  return program;
}

bool ProgramTable::evict(const Digest& digest) {
  std::unique_ptr<Module> evicted;
  const base::MutexLock lock(mutex_);
  const Cell* cell = cell_of(digest);
  if (cell == nullptr) return false;
  Resident* resident = cell->resident.load(std::memory_order_relaxed);
  if (resident->close() != Resident::Closing::closed) return false;
  evicted = move_out(resident);
  return true;
}

std::size_t ProgramTable::trim(std::size_t keep) {
  std::vector<std::unique_ptr<Module>> evicted;
  const base::MutexLock lock(mutex_);
  while (order_.size() > keep) {
    auto module = evict_oldest();
    if (!module) break;
    evicted.push_back(std::move(*module));
  }
  return evicted.size();
}

bool ProgramTable::evict_one() {
  std::optional<std::unique_ptr<Module>> evicted;
  const base::MutexLock lock(mutex_);
  evicted = evict_oldest();
  return evicted.has_value();
}

void ProgramTable::mark_stored(const Digest& digest) {
  const base::MutexLock lock(mutex_);
  unsaved_.erase(digest);
  if (const Cell* cell = cell_of(digest)) cell->resident.load(std::memory_order_relaxed)->set_stored();
}

void ProgramTable::keep_unsaved(const Digest& digest, std::shared_ptr<const store::UnsavedEntry> entry) {
  const base::MutexLock lock(mutex_);
  if (cell_of(digest) != nullptr) unsaved_.insert_or_assign(digest, std::move(entry));
}

std::vector<ProgramTable::Unsaved> ProgramTable::take_unsaved() {
  const base::MutexLock lock(mutex_);
  std::vector<Unsaved> taken;
  for (auto& [digest, entry] : unsaved_)
    if (const Cell* cell = cell_of(digest))
      taken.push_back({cell->resident.load(std::memory_order_relaxed)->key(), std::move(entry)});
  unsaved_.clear();
  return taken;
}

std::vector<ProgramTable::Note> ProgramTable::take_notes_of_evicted() {
  const base::MutexLock lock(mutex_);
  std::vector<Note> notes(notes_of_evicted_.begin(), notes_of_evicted_.end());
  notes_of_evicted_.clear();
  return notes;
}

std::vector<ProgramTable::Note> ProgramTable::take_notes() {
  std::vector<Note> notes = take_notes_of_evicted();
  const base::MutexLock lock(mutex_);
  for (const auto& [stamp, resident] : order_)
    if (resident->stored() && resident->take_note())
      notes.push_back({resident->key().digest, resident->gflops(), resident->gbps()});
  return notes;
}

std::vector<ProgramInfo> ProgramTable::list() {
  const base::MutexLock lock(mutex_);
  std::vector<ProgramInfo> list;
  for (const auto& [stamp, resident] : order_)
    list.push_back({resident->key(), resident->origin(), resident->bytes(), resident->references(),
                    resident->hits(), resident->last_use(), resident->compile_time(), resident->gflops(),
                    resident->gbps(), resident->stored()});
  std::sort(list.begin(), list.end(),
            [](const ProgramInfo& a, const ProgramInfo& b) { return a.last_use < b.last_use; });
  return list;
}

ProgramTable::Totals ProgramTable::totals() {
  const base::MutexLock lock(mutex_);
  Totals totals{
      .evictions = evictions_, .bound_exceeded = bound_exceeded_, .programs = order_.size(), .bytes = bytes_};
  for (const Resident* resident : residents_) totals.hits += resident->hits_ever();
  totals.hits -= std::min(totals.hits, hits_before_);
  return totals;
}

Resident* ProgramTable::take_vacant() {
  if (vacant_.empty()) {
    residents_.push_back(&ResidentPool::of_process().take());
    hits_before_ += residents_.back()->hits_ever();
    return residents_.back();
  }
  Resident* resident = vacant_.back();
  vacant_.pop_back();
  return resident;
}

ProgramTable::Cell* ProgramTable::cell_of(const Digest& digest) {
  Index& index = *indexes_.back();
  const std::uint64_t tag = tag_of(digest);
  for (std::size_t i = index.home(tag);; i = (i + 1) & index.mask) {
    Cell& cell = index.cells[i];
    const std::uint64_t seen = cell.tag.load(std::memory_order_relaxed);
    if (seen == 0) return nullptr;
    if (seen == tag && cell.resident.load(std::memory_order_relaxed)->key().digest == digest) return &cell;
  }
}

void ProgramTable::place(Index& index, Resident* resident) {
  const std::uint64_t tag = tag_of(resident->key().digest);
  std::size_t i = index.home(tag);
  while (index.cells[i].tag.load(std::memory_order_relaxed) != 0) i = (i + 1) & index.mask;
  index.cells[i].resident.store(resident, std::memory_order_release);
  index.cells[i].tag.store(tag, std::memory_order_release);
}

void ProgramTable::grow() {
  auto larger = std::make_unique<Index>(2 * (indexes_.back()->mask + 1));
  for (const auto& [stamp, resident] : order_) place(*larger, resident);
  indexes_.push_back(std::move(larger));
  index_.store(indexes_.back().get(), std::memory_order_release);
}

void ProgramTable::erase(Cell* cell) {
  // Moves later cells up, so that no probe sequence has a gap. A concurrent find() may miss a program during this;
  // find_locked() does not.
  Index& index = *indexes_.back();
  auto hole = static_cast<std::size_t>(cell - index.cells.get());
  for (std::size_t i = (hole + 1) & index.mask;; i = (i + 1) & index.mask) {
    const std::uint64_t tag = index.cells[i].tag.load(std::memory_order_relaxed);
    if (tag == 0) break;
    const std::size_t wanted = index.home(tag);
    const bool may_move = ((i - wanted) & index.mask) >= ((i - hole) & index.mask);
    if (!may_move) continue;
    index.cells[hole].resident.store(index.cells[i].resident.load(std::memory_order_relaxed),
                                     std::memory_order_release);
    index.cells[hole].tag.store(tag, std::memory_order_release);
    hole = i;
  }
  index.cells[hole].tag.store(0, std::memory_order_release);
}

std::unique_ptr<Module> ProgramTable::move_out(Resident* resident) {
  erase(cell_of(resident->key().digest));
  order_.erase({resident->place, resident});
  unsaved_.erase(resident->key().digest);
  bytes_ -= resident->bytes();
  ++evictions_;
  if (resident->stored() && resident->take_note())
    notes_of_evicted_.push_back({resident->key().digest, resident->gflops(), resident->gbps()});
  if (notes_of_evicted_.size() > max_notes) notes_of_evicted_.pop_front();
  const bool inherited = resident->inherited();
  auto module = resident->move_out();
  vacant_.push_back(resident);
  if (inherited) static_cast<void>(module.release());
  return module;
}

void ProgramTable::begin_child() {
  hits_before_ = 0;
  for (const Resident* resident : residents_) hits_before_ += resident->hits_ever();
  evictions_ = 0;
  bound_exceeded_ = 0;
  notes_of_evicted_.clear();
}

std::optional<std::unique_ptr<Module>> ProgramTable::evict_oldest() {
  // Each program moves back at most once; otherwise a program in constant use could keep this loop running forever.
  std::size_t moves = order_.size();
  for (auto it = order_.begin(); it != order_.end();) {
    Resident* resident = it->second;
    const std::uint64_t last_use = resident->last_use();
    // Catch up with the fastest thread's clock, so that its time stamps do not stay ahead of the others'.
    if (last_use >= clock_.load(std::memory_order_relaxed)) clock_.store(last_use + 1, std::memory_order_relaxed);
    if (last_use > resident->place && moves > 0) {
      --moves;
      // Used since it was placed here: reinsert it at its last use.
      it = order_.erase(it);
      resident->place = last_use;
      const auto placed = order_.emplace(last_use, resident).first;
      if (it == order_.end() || *placed < *it) it = placed;
      continue;
    }
    const Resident::Closing closing = resident->close();
    if (closing == Resident::Closing::closed) return move_out(resident);
    if (closing == Resident::Closing::refused) break;
    ++it;
  }
  return std::nullopt;
}

bool ProgramTable::over_bounds() const { return order_.size() > bounds_.programs || bytes_ > bounds_.bytes; }

}  // namespace kiln::memory
