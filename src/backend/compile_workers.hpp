#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <kiln/backend.hpp>
#include <kiln/compile_workers.hpp>
#include <kiln/result.hpp>

#include "backend/compile_worker.hpp"
#include "backend/processors.hpp"
#include "base/mutex.hpp"
#include "base/process.hpp"

namespace kiln::backend {

/// What a worker needs to compile one program.
struct Compilation {
  /// As in "nvrtc", and "NVRTC 13.0".
  std::string compiler;
  std::string title;
  /// The file of the compiler.
  std::string library;
  /// The name of the program, for errors.
  std::string program;
  /// The call, as the worker reads it.
  std::function<std::string()> call;
  /// Compiles in this process.
  std::function<void()> here;
};

/// The places where this process compiles: one in the process itself, one more for urgent requests, and its
/// workers. Thread-safe. A forked child has none of its parent's workers.
class CompilePlaces : public std::enable_shared_from_this<CompilePlaces> {
 public:
  /// The object of this process, which its users own together. The last one ends the workers.
  static std::shared_ptr<CompilePlaces> of_process();

  explicit CompilePlaces(Machine machine = {});
  ~CompilePlaces();
  CompilePlaces(const CompilePlaces&) = delete;
  CompilePlaces& operator=(const CompilePlaces&) = delete;

  /// Waits for a place. Urgent requests come before others. If this process cannot have workers, there is always a
  /// place in the process itself.
  std::unique_ptr<CompilePlace> wait(Urgency urgency) KILN_EXCLUDES(mutex_);

  /// Compiles at the place that this thread has, or waits for an urgent one. Returns the worker's answer; nothing
  /// if it has called Compilation::here. Fails with compile_failed if the compiler crashed, and with timed_out.
  Result<std::optional<std::string>> run(const Compilation& compilation);

  /// For tests: how many workers run now.
  std::size_t workers() const KILN_EXCLUDES(mutex_);

 private:
  struct Slot;
  struct State;
  class Place;

  std::unique_ptr<Place> take(Urgency urgency) KILN_REQUIRES(mutex_);
  void release(Place& place) KILN_EXCLUDES(mutex_);
  /// Ends the process of a slot and gives back its token.
  void stop(std::unique_ptr<Slot> slot) KILN_EXCLUDES(mutex_);
  void replace(Slot& slot, std::unique_ptr<CompileWorker> worker) KILN_EXCLUDES(mutex_);
  /// Keeps the slot's worker for the next compilation.
  void keep(Slot& slot) KILN_REQUIRES(mutex_);
  /// Stops idle workers until there are none.
  void stop_idle() KILN_EXCLUDES(mutex_);
  bool may_have_workers() KILN_REQUIRES(mutex_);
  /// Whether there has been no token for so long that workers are started without one.
  bool is_without_tokens() KILN_REQUIRES(mutex_);
  /// How many compilations may run at once.
  std::size_t allowed() const KILN_REQUIRES(mutex_);
  /// Compiles in the worker of a slot. Nothing if it cannot be started.
  std::optional<Result<std::string>> run_in(Slot& slot, const Compilation& compilation) KILN_EXCLUDES(mutex_);

  const Machine machine_;
  mutable base::ForkMutex mutex_;
  /// A forked child replaces it, and does not destroy the parent's.
  std::unique_ptr<State> state_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::backend
