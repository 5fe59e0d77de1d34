#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "base/mutex.hpp"

namespace kiln::cache {

/// Threads for calls that others wait for only as long as they want to: on servers, on folders of a network, on
/// stores of the application. They are started when they are needed, and end after some time without work.
class CallThreads {
 public:
  /// What the destructor does with a call that is under way: waits for it, because it ends soon once it is
  /// cancelled, or leaves its thread behind, because it may hang.
  enum class AtEnd { wait, leave_behind };

  /// `name` is that of the threads, at most 15 characters.
  CallThreads(const char* name, std::size_t most);
  CallThreads(const CallThreads&) = delete;
  CallThreads& operator=(const CallThreads&) = delete;
  /// Drops calls that have not begun. Cancel those under way first. A call that is left behind must own what it
  /// uses.
  ~CallThreads();

  /// Runs the call on a thread, later if `most` calls are under way. Returns false, and does nothing, if no thread
  /// can be started. Exceptions of the call are dropped.
  bool run(std::function<void()> call, AtEnd at_end);

 private:
  struct State;
  struct Worker;
  /// Starts a thread, with the state locked. False if none can be started.
  static bool start(const std::shared_ptr<State>& state) KILN_THREAD_ANNOTATION(no_thread_safety_analysis);
  static void work(const std::shared_ptr<State>& state, Worker& self);

  std::shared_ptr<State> state_;
};

}  // namespace kiln::cache
