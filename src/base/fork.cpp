#include "base/fork.hpp"

#include <array>
#include <atomic>
#include <memory>
#include <set>
#include <utility>

#include <pthread.h>

#include "base/thread_slot.hpp"

namespace kiln::base {

/// What fork() calls, and the mutexes it locks: the outer ones, then the inner ones, each by their addresses.
struct ForkHandlers {
  std::atomic<std::uint64_t> generation{0};
  Mutex mutex;
  std::array<std::set<ForkMutex*>, 2> by_order KILN_GUARDED_BY(mutex);

  static ForkHandlers& of_process() {
    // Never destroyed: a static variable may be destroyed, or the process forked, after everything else.
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

  // fork() runs between these; the analysis follows no locks over several functions.
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

}  // namespace kiln::base
