#pragma once

#include <cstdint>
#include <functional>

#include "base/mutex.hpp"

namespace kiln::base {

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
