#include "base/process.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <set>
#include <utility>

#include <link.h>
#include <pthread.h>

#include "base/thread_slot.hpp"

namespace kiln::base {
namespace {

std::atomic<bool> ends{false};
std::atomic<unsigned long long> libraries_expected{0};

/// How many libraries this process has loaded so far, unloaded ones included.
unsigned long long libraries_loaded() {
  unsigned long long count = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* told) {
        *static_cast<unsigned long long*>(told) = info->dlpi_adds;
        return 1;
      },
      &count);
  return count;
}

}  // namespace

void expect_process_end() {
  // Exit handlers run in reverse order of registration, so this one runs before those of the libraries loaded by
  // now. Libraries loaded later need another registration.
  const unsigned long long loaded = libraries_loaded();
  if (libraries_expected.exchange(loaded) != loaded)
    static_cast<void>(std::atexit([] { ends.store(true, std::memory_order_relaxed); }));
}

bool process_ends() noexcept { return ends.load(std::memory_order_relaxed); }

/// The fork() handlers and the mutexes they lock: first the outer ones, then the inner ones, each group by address.
struct ForkHandlers {
  std::atomic<std::uint64_t> generation{0};
  Mutex mutex;
  std::array<std::set<ForkMutex*>, 2> by_order KILN_GUARDED_BY(mutex);

  static ForkHandlers& of_process() {
    // Never destroyed: destructors of static variables, and forks, can happen at any time during exit.
    static ForkHandlers& handlers = []() -> ForkHandlers& {
      pthread_atfork([] { of_process().lock_all(); }, [] { of_process().unlock_all(); },
                     [] { of_process().begin_child(); });
      return *std::make_unique<ForkHandlers>().release();
    }();
    return handlers;
  }

  std::set<ForkMutex*>& those_of(ForkMutex::Order order) KILN_REQUIRES(mutex) {
    return by_order[static_cast<std::size_t>(order)];
  }

  // fork() runs between these functions; the analysis cannot follow a lock across functions.
  void lock_all() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) {
    mutex.lock();
    for (const auto& mutexes : by_order)
      for (ForkMutex* each : mutexes) each->lock();
  }
  void unlock_all() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) {
    for (const auto& mutexes : by_order)
      for (ForkMutex* each : mutexes) each->unlock();
    mutex.unlock();
  }
  void begin_child() KILN_THREAD_ANNOTATION(no_thread_safety_analysis) {
    generation.fetch_add(1, std::memory_order_relaxed);
    ThreadSlot::keep_only_this_thread();
    for (const auto& mutexes : by_order)
      for (const ForkMutex* each : mutexes)
        if (each->in_child_) each->in_child_();
    unlock_all();
  }
};

std::uint64_t fork_generation() noexcept {
  return ForkHandlers::of_process().generation.load(std::memory_order_relaxed);
}

ForkMutex::ForkMutex(Order order, std::function<void()> in_child) : order_(order), in_child_(std::move(in_child)) {
  ForkHandlers& handlers = ForkHandlers::of_process();
  const MutexLock lock(handlers.mutex);
  handlers.those_of(order_).insert(this);
}

ForkMutex::~ForkMutex() {
  ForkHandlers& handlers = ForkHandlers::of_process();
  const MutexLock lock(handlers.mutex);
  handlers.those_of(order_).erase(this);
}

std::filesystem::path default_directory() {
  const auto variable = [](const char* name) -> std::filesystem::path {
    const char* value = environment(name);
    return value != nullptr ? value : "";
  };
  if (auto directory = variable("KILN_CACHE_DIR"); !directory.empty()) return directory;
  if (auto cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache / "kiln";
  if (auto home = variable("HOME"); !home.empty()) return home / ".cache" / "kiln";
  return {};
}

}  // namespace kiln::base
