#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <kiln/store.hpp>

#include "cache/fleet_leases.hpp"
#include "cache/store_client.hpp"

namespace kiln::cache {

/// Uploads entries to one shared store on its own thread, so that compiles, saves to disk and locks never wait for
/// a server. The first upload starts the thread. If a call of the store does not return in time, the destructor
/// detaches the thread; it owns the state it uses, and ends when the store returns.
class Uploader {
 public:
  using Sealed = std::shared_ptr<const std::vector<std::byte>>;
  /// Asked on the upload thread before an entry is put.
  using May = std::function<bool(const std::vector<std::byte>& sealed)>;

  /// Queues at most `bound` entries.
  Uploader(std::shared_ptr<StoreClient> client, std::size_t bound, May may);
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;
  /// Drops queued uploads and cancels the one under way; call wait_until() first.
  ~Uploader();

  /// Queues the entry. If the queue is full or no thread can be started, drops it and counts a failure. Releases
  /// `lease` when the entry is put or dropped.
  void upload(EntryAddress address, Sealed sealed, std::shared_ptr<HeldLease> lease);
  /// Waits until all queued uploads have finished or failed; returns false if that takes until `deadline`. Does not
  /// wait again for a call for which an earlier one waited in vain.
  bool wait_until(std::chrono::steady_clock::time_point deadline);

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace kiln::cache
