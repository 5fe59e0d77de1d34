#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>

#include <sys/auxv.h>

#include "base/mutex.hpp"

namespace kiln::base {

/// Whether the program has privileges that its caller lacks: set-uid, set-gid or file capabilities.
inline bool has_more_rights_than_its_caller() noexcept { return ::getauxval(AT_SECURE) != 0; }

/// The value of an environment variable. Null if it is not set, or if the program has more rights than its caller:
/// the caller's environment is not trusted then.
inline const char* environment(const char* name) noexcept { return ::secure_getenv(name); }

/// The default directory of caches: `$KILN_CACHE_DIR`, else `$XDG_CACHE_HOME/kiln`, else `~/.cache/kiln`; empty if
/// none of these is set.
std::filesystem::path default_directory();

/// Call this after loading a driver, so that process_ends() returns true before the driver's exit handlers run.
void expect_process_end();

/// Whether exit() has begun to run, or is about to run, the exit handlers of drivers. Destructors that run then
/// must not call drivers; the operating system frees the resources.
bool process_ends() noexcept;

/// The number of forks between the process that first called this and the current one. Processes that share memory
/// through fork() have different generations, even if pids repeat.
std::uint64_t fork_generation() noexcept;

/// A mutex that the fork handlers lock before fork() and unlock in parent and child, so that a child never inherits
/// it locked by a thread that the child lacks. Hold it briefly: every fork() of the process waits for it. Do not
/// construct or destroy one while holding another.
class KILN_THREAD_ANNOTATION(capability("mutex")) ForkMutex : public Mutex {
 public:
  /// A thread that holds an outer mutex may lock an inner one. A thread holds at most one mutex of each order.
  enum class Order { outer, inner };

  /// `in_child` runs in each forked child, with the mutex held, before fork() returns.
  explicit ForkMutex(Order order, std::function<void()> in_child = {});
  ~ForkMutex();
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;

 private:
  friend struct ForkHandlers;

  const Order order_;
  const std::function<void()> in_child_;
};

/// The result of `make`, a std::unique_ptr, for the whole process; each lambda has one. Never destroyed, because
/// static variables may use it when the process ends. Takes no lock, unlike a static variable: a child that is
/// forked while another thread runs `make` runs it again, and so may two threads.
template <class T, class Make>
T& once_per_process(Make make) {
  static constinit std::atomic<T*> kept{nullptr};
  if (T* known = kept.load(std::memory_order_acquire)) return *known;
  std::unique_ptr<T> made = make();
  T* first = nullptr;
  if (kept.compare_exchange_strong(first, made.get(), std::memory_order_acq_rel)) return *made.release();
  return *first;
}

}  // namespace kiln::base
