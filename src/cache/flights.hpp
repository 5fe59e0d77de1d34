#pragma once

#include <functional>
#include <future>
#include <map>
#include <optional>
#include <thread>

#include <kiln/digest.hpp>
#include <kiln/program.hpp>
#include <kiln/result.hpp>

#include "base/mutex.hpp"

namespace kiln::cache {

/// One flight for each key at a time: the first to ask does the work, those who ask meanwhile get its outcome.
class Flights {
 public:
  /// A program, an error, or nothing where none was found.
  using Outcome = Result<std::optional<Program>>;

  struct Landed {
    Outcome outcome;
    /// Whether it was another thread's work.
    bool joined;
  };

  /// Runs `fly` unless somebody does so for this key already; in that case waits for theirs. `landed_before` is
  /// asked first, when no flight of the key can land: what it finds needs no flight. An exception out of `fly`
  /// becomes an error. So does a call for the same key by `fly` itself, which would wait for itself.
  Landed fly(const Digest& key, const std::function<Program()>& landed_before, const std::function<Outcome()>& fly);

 private:
  struct Flight {
    std::shared_future<Outcome> outcome;
    std::thread::id pilot;
  };

  base::Mutex mutex_;
  std::map<Digest, Flight> in_the_air_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::cache
