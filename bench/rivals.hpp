#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#if KILN_BENCH_TBB
#include <tbb/concurrent_hash_map.h>
#endif

#include <kiln/backend.hpp>
#include <kiln/request.hpp>
#include <kiln/result.hpp>

/// What Kiln's hit in memory is measured against: caches with the same get(), as others write them. They are
/// compiled apart from the benchmark, so that calling them costs what calling a library costs. Nothing is ever
/// evicted from them, but a hit does all that an eviction by last use would need.
namespace kiln::bench {

/// A program in one of the caches below that count with std::shared_ptr.
struct Loaded {
  std::unique_ptr<Module> module = {};
  std::atomic<std::uint64_t> last_use{0};

  /// Coarse, and written only when it changes, as Kiln's is: a stamp that every hit writes would be all that is
  /// measured with several threads.
  void stamp(std::uint64_t now) noexcept {
    if (last_use.load(std::memory_order_relaxed) != now) last_use.store(now, std::memory_order_relaxed);
  }
};
using LoadedProgram = std::shared_ptr<Loaded>;

struct DigestHash {
  std::size_t operator()(const Digest& digest) const noexcept { return digest.word(0); }
};

/// Kiln's structure for one thread: open addressing by digest, plain counts, a plain stamp.
class Unsynchronized {
 public:
  struct Entry {
    Digest digest = {};
    std::uint64_t references = 0;
    std::uint64_t last_use = 0;
    std::unique_ptr<Module> module = {};
  };

  class Handle {
   public:
    explicit Handle(Entry* entry) noexcept : entry_(entry) { ++entry->references; }
    Handle(Handle&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}
    Handle& operator=(Handle&&) = delete;
    ~Handle() {
      if (entry_ != nullptr) --entry_->references;
    }

    Module& module() const noexcept { return *entry_->module; }

   private:
    Entry* entry_;
  };

  explicit Unsynchronized(Backend& backend) : backend_(backend), slots_(slot_count) {}

  Result<Handle> get(const Request& request);

 private:
  static constexpr std::size_t slot_count = 4096;

  Result<Handle> miss(const Request& request);

  Backend& backend_;
  std::vector<std::unique_ptr<Entry>> slots_;
  std::uint64_t clock_ = 0;
  std::uint64_t requests_ = 0;
  std::uint64_t hits_ = 0;
};

/// One mutex around a map and a list in order of use.
class CriticalSection {
 public:
  explicit CriticalSection(Backend& backend) : backend_(backend) {}

  Result<LoadedProgram> get(const Request& request);

 private:
  struct Item {
    Digest digest;
    LoadedProgram program;
  };

  Backend& backend_;
  std::mutex mutex_;
  std::list<Item> by_use_;
  std::unordered_map<Digest, std::list<Item>::iterator, DigestHash> items_;
  std::uint64_t hits_ = 0;
};

/// A map under a readers' lock; last use is a stamp, since readers cannot reorder a list.
class SharedMutex {
 public:
  explicit SharedMutex(Backend& backend) : backend_(backend) {}

  Result<LoadedProgram> get(const Request& request);

 private:
  Backend& backend_;
  std::shared_mutex mutex_;
  std::unordered_map<Digest, LoadedProgram, DigestHash> items_;
  /// Advances with every program added.
  std::atomic<std::uint64_t> now_{0};
};

#if KILN_BENCH_TBB
/// TBB's concurrent map, with the same stamp.
class Tbb {
 public:
  explicit Tbb(Backend& backend) : backend_(backend) {}

  Result<LoadedProgram> get(const Request& request);

 private:
  struct Compare {
    static std::size_t hash(const Digest& digest) noexcept { return digest.word(0); }
    static bool equal(const Digest& a, const Digest& b) noexcept { return a == b; }
  };
  using Map = tbb::concurrent_hash_map<Digest, LoadedProgram, Compare>;

  Backend& backend_;
  Map items_;
  /// Advances with every program added.
  std::atomic<std::uint64_t> now_{0};
};
#endif

}  // namespace kiln::bench
