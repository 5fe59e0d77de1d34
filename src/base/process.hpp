#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>

#include <sys/auxv.h>

#include "base/mutex.hpp"

namespace kiln::base {

/// Whether the program runs with rights that its caller has not: set-uid, set-gid or with capabilities.
inline bool has_more_rights_than_its_caller() noexcept { return ::getauxval(AT_SECURE) != 0; }

/// The value of a variable of the environment; null where it is not set, and where the program has more rights than
/// its caller, whose words are not to be trusted then.
inline const char* environment(const char* name) noexcept { return ::secure_getenv(name); }

/// To be called when a driver has been loaded: whatever is destroyed after the driver's own exit handlers have run
/// will be told that the process ends.
void expect_process_end();

/// Whether the process is ending, and drivers with it: exit() is about to run their handlers, or has, and then
/// destroys static variables older than they are. Nothing is asked of a driver any more; the system takes back what
/// it held.
bool process_ends() noexcept;

/// How many forks lie between this process and the one that first asked. Two processes that share memory through
/// fork() have different numbers, also where pids repeat.
std::uint64_t fork_generation() noexcept;

/// A Mutex that fork() locks on the thread that forks and unlocks in parent and child, so that no child inherits it
/// locked by a thread that the child does not have. Held for short: every fork() of the process waits for it. Must
/// not be constructed or destroyed while another one is held.
class KILN_THREAD_ANNOTATION(capability("mutex")) ForkMutex : public Mutex {
 public:
  /// A thread that holds one of the outer order may lock one of the inner order; nobody holds two of one order.
  enum class Order { outer, inner };

  /// `in_child` is called in each forked child, before fork() returns there, with the mutex held.
  explicit ForkMutex(Order order, std::function<void()> in_child = {});
  ~ForkMutex();
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;

 private:
  friend struct ForkHandlers;

  const Order order_;
  const std::function<void()> in_child_;
};

}  // namespace kiln::base
