#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <kiln/log.hpp>
#include <kiln/store.hpp>

#include "cache/guarded_store.hpp"

namespace kiln::cache {

/// Puts entries into a shared store on a thread of its own, so that neither a compile, nor a save to disk, nor a
/// lock waits for a server. The thread is started by the first upload. If the store does not return from put() in
/// time, the thread is left behind: it keeps alive what it uses, and ends when the store returns.
class Uploader {
 public:
  /// Queues at most `bound` entries.
  Uploader(GuardedStore store, Log log, std::size_t bound);
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;
  /// Drops what is still queued. Does not wait for the store: call wait() before.
  ~Uploader();

  /// Queues the entry. If the queue is full, or no thread can be had, the entry is dropped and counted as a
  /// failure.
  void upload(EntryAddress address, std::shared_ptr<const std::vector<std::byte>> sealed);
  /// Waits until everything queued was tried, at most until the limit. Whether it was.
  bool wait(std::chrono::milliseconds limit);
  /// Uploads that failed or were dropped.
  std::uint64_t failures() const noexcept;

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace kiln::cache
