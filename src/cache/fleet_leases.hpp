#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <kiln/store.hpp>

#include "base/event.hpp"
#include "base/mutex.hpp"
#include "cache/store_client.hpp"

namespace kiln::cache {

/// The right to compile a program for all machines that share a store. Destroying it gives the right back; if that
/// fails, the lease expires.
class HeldLease {
 public:
  /// Gives nothing back once `ending` is set.
  HeldLease(std::shared_ptr<StoreClient> client, store::Lease lease, std::shared_ptr<const base::Event> ending)
      : client_(std::move(client)), lease_(std::move(lease)), ending_(std::move(ending)) {}
  HeldLease(const HeldLease&) = delete;
  HeldLease& operator=(const HeldLease&) = delete;
  ~HeldLease();

 private:
  const std::shared_ptr<StoreClient> client_;
  const store::Lease lease_;
  const std::shared_ptr<const base::Event> ending_;
};

/// Decides which machine of a fleet compiles a program, by leases of a shared store. They are advisory: a cache
/// waits for the holder of a lease for as long as it expects to compile, and then compiles too. Safe from any
/// thread, but only one may ask for a program at a time.
class FleetLeases {
 public:
  using Clock = std::chrono::steady_clock;

  /// The lease, and the longest wait for one, for a program of which this process does not know how long it takes.
  static constexpr std::chrono::seconds unknown_time{10};

  explicit FleetLeases(std::shared_ptr<const base::Event> ending);

  /// What a cache does with a program that it lacks.
  struct Turn {
    /// Not null: this cache compiles it for all.
    std::shared_ptr<HeldLease> lease = {};
    /// The entry, if the store has it by now. It is not checked.
    std::optional<std::vector<std::byte>> sealed = {};
    /// Another machine compiles it: ask again then. Nothing: compile it.
    std::optional<Clock::time_point> ask_again = {};
  };
  /// `may_take`: whether this cache will upload the program. `expected`: how long compiling takes, if that is
  /// known.
  Turn ask(const std::shared_ptr<StoreClient>& client, const EntryAddress& address, bool may_take,
           std::optional<std::chrono::nanoseconds> expected) KILN_EXCLUDES(mutex_);
  /// Whether another machine compiled the program when it was last asked for, and it is too early to ask again.
  bool is_waiting(const Digest& key) const KILN_EXCLUDES(mutex_);
  /// Whether there is such a program.
  bool is_waiting() const KILN_EXCLUDES(mutex_);

 private:
  struct Wait {
    Clock::time_point since;
    Clock::time_point ask_again;
  };
  std::optional<Wait> wait_for(const Digest& key) const KILN_EXCLUDES(mutex_);

  const std::string token_;
  const std::shared_ptr<const base::Event> ending_;
  mutable base::Mutex mutex_;
  std::map<Digest, Wait> waits_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::cache
