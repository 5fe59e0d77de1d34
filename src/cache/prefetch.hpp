#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <kiln/request.hpp>

#include "cache/call_threads.hpp"
#include "cache/shared_stores.hpp"
#include "store/disk_store.hpp"

namespace kiln::cache {

/// Fetches many programs from the shared stores to the disk, in the background and in as few round trips as the
/// stores permit. Safe from any thread.
class Prefetch {
 public:
  using Clock = std::chrono::steady_clock;
  /// Returns the keys to fetch. Called once, in the background.
  using Keys = std::function<std::vector<Key>()>;

  Prefetch(const SharedStores& stores, std::shared_ptr<store::DiskStore> disk, Keys keys);
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;
  /// Cancels it. Calls of the application's stores and of folders that do not return are left behind.
  ~Prefetch();

  /// Begins it, and waits until the program is on disk or it is known that it will not be, or until `when`, or
  /// while there is no progress. Returns whether it waited at all.
  bool wait_for(const Digest& key, Clock::time_point when);
  /// Begins it, and waits for its end, or until there is no progress.
  void wait();
  /// How many programs it has saved.
  std::uint64_t saved() const noexcept;

 private:
  void start();

  struct State;

  const std::shared_ptr<State> state_;
  /// Declared last: its threads end first.
  CallThreads threads_;
};

}  // namespace kiln::cache
