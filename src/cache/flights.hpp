#pragma once

#include <functional>
#include <future>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include <kiln/digest.hpp>
#include <kiln/program.hpp>
#include <kiln/result.hpp>

#include "base/mutex.hpp"
#include "cache/worker_pool.hpp"

namespace kiln::cache {

/// One flight for each key at a time: the first to ask does the work, those who ask meanwhile get its outcome.
class Flights {
 public:
  /// A program, an error, or nothing if none was found.
  using Outcome = Result<std::optional<Program>>;
  using Continuation = std::function<void(const Outcome&)>;

  struct Landed {
    Outcome outcome;
    /// Whether it was another thread's work.
    bool joined;
  };

  /// `workers` are the threads that flights may need: one that waits for another thread's flight is not counted.
  explicit Flights(WorkerPool& workers) : workers_(workers) {}

  /// Runs `fly` unless another thread does so for this key already; in that case waits for theirs. `landed_before`
  /// is asked first, when no flight of the key can land: what it finds needs no flight. An exception out of `fly`
  /// becomes an error. So does a call for the same key by `fly` itself, which would wait for itself.
  Landed fly(const Digest& key, const std::function<Program()>& landed_before, const std::function<Outcome()>& fly);

  /// Has the thread that flies this key call `then` with the outcome. False if there is no such thread, or it is
  /// this one: `then` is not called.
  bool when_landed(const Digest& key, Continuation then);

 private:
  struct Flight {
    std::shared_future<Outcome> outcome;
    std::thread::id pilot;
    std::vector<Continuation> then = {};
  };

  WorkerPool& workers_;
  base::Mutex mutex_;
  std::map<Digest, Flight> in_the_air_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::cache
