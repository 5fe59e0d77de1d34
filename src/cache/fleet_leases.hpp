#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

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

  const StoreClient* client() const noexcept { return client_.get(); }

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
  using Expected = std::optional<std::chrono::nanoseconds>;

  /// The lease, and the longest wait for one, if the process does not know how long a program takes to compile.
  static constexpr std::chrono::seconds unknown_time{10};
  /// How long a server may take to answer before the program is compiled without a lease.
  static constexpr std::chrono::milliseconds answer_limit{150};

  explicit FleetLeases(std::shared_ptr<const base::Event> ending);

  /// What a cache does with a program that it lacks.
  struct Turn {
    /// Compile it, ask again with a place to compile, load it from the store, or ask again later, because another
    /// machine compiles it.
    enum class Kind { compile, get_place, load, wait };
    Kind kind = Kind::compile;
    /// With `compile`; null if the lease was not asked for, or not given.
    std::shared_ptr<HeldLease> lease = {};
    /// With `wait`.
    Clock::time_point ask_again = {};
  };
  struct Question {
    EntryAddress address;
    /// How long compiling takes, if that is known.
    Expected expected = {};
    /// Whether the cache uploads what it compiles: otherwise it takes no lease.
    bool will_upload = false;
    /// Whether it can compile at once: a lease that is taken earlier could expire before.
    bool has_place = false;
    /// Whether the entry that is in the store is of no use.
    bool ignore_entry = false;
  };
  Turn ask(const std::shared_ptr<StoreClient>& client, const Question& question) KILN_EXCLUDES(mutex_);
  /// Goes on waiting while the store does not answer, if the cache waits already.
  Turn keep_waiting(StoreClient& client, const Question& question) KILN_EXCLUDES(mutex_);

  /// Whether another machine compiled the program when it was last asked for, and it is too early to ask again.
  bool is_waiting(const Digest& key) const KILN_EXCLUDES(mutex_);
  /// Whether there are programs that other machines compile.
  bool is_waiting() const KILN_EXCLUDES(mutex_);

 private:
  struct Wait {
    Clock::time_point since;
    Clock::time_point ask_again;
  };
  /// Nothing if the cache does not wait, or has not asked again for long.
  std::optional<Wait> wait_of(const Digest& key, Clock::time_point now) const KILN_EXCLUDES(mutex_);
  /// Waits further for a lease that is held, unless it waited for long enough.
  Turn wait_on(StoreClient& client, const Question& question, const std::optional<Wait>& before)
      KILN_EXCLUDES(mutex_);
  void stop_waiting(const Digest& key) KILN_EXCLUDES(mutex_);

  const std::string token_;
  /// From 0 to 1: so that the machines of a fleet do not all ask at the same times.
  const double jitter_;
  const std::shared_ptr<const base::Event> ending_;
  std::atomic<std::uint64_t> taken_{0};
  mutable base::Mutex mutex_;
  std::map<Digest, Wait> waits_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::cache
