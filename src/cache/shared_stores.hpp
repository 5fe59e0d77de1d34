#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <kiln/cache.hpp>
#include <kiln/identity.hpp>
#include <kiln/stats.hpp>

#include "base/event.hpp"
#include "cache/call_threads.hpp"
#include "cache/fleet_leases.hpp"
#include "cache/store_client.hpp"
#include "cache/uploader.hpp"
#include "store/sealed_entry.hpp"
#include "store/settings.hpp"
#include "store/signatures.hpp"

namespace kiln::cache {

/// A checked entry of a shared store.
struct Fetched {
  store::Entry entry;
  /// The sealed bytes, as they came from the store.
  std::vector<std::byte> sealed;
  /// The store that had it.
  std::size_t place = 0;
};

/// A search for one program in the shared stores, fastest first, on a thread of its own. Destroying it cancels the
/// search.
class Fetch {
 public:
  using Clock = std::chrono::steady_clock;

  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;
  ~Fetch();

  /// Waits until the search has ended, or until `when`. Returns whether it has ended.
  bool wait_until(Clock::time_point when);
  bool has_ended() const;
  /// When the search ends. Calls of folders and of the application's stores may take longer.
  Clock::time_point deadline() const noexcept;
  /// Reports to the circuit breaker of the store being asked that a caller has waited for long. Returns whether it
  /// is open now.
  bool unanswered();
  /// Reports to that circuit breaker how long the caller has waited, because it waits no longer.
  void stopped_waiting();
  /// What was found, once the search has ended.
  std::optional<Fetched> take();
  /// Calls `then` once the search has ended; at once if it has.
  void when_ended(std::function<void()> then);
  /// Counts a race with the compiler for the store that had or may have the program.
  void count_race(bool store_won);

 private:
  friend class SharedStores;
  struct State;
  explicit Fetch(std::shared_ptr<State> state) : state_(std::move(state)) {}

  const std::shared_ptr<State> state_;
};

/// The shared stores of a cache, fastest first: asks them for entries, checks what they answer, and uploads.
/// Nothing in it waits for a store, except wait_for_uploads() up to its limit.
class SharedStores {
 public:
  using Sealed = std::shared_ptr<const std::vector<std::byte>>;

  /// `owner` identifies the cache. Problems of the settings are logged, and a store that cannot be used is left
  /// out.
  SharedStores(const CacheOptions& options, const store::Settings& settings, const Identity& identity,
               const void* owner);
  SharedStores(const SharedStores&) = delete;
  SharedStores& operator=(const SharedStores&) = delete;
  /// Cancels fetches and uploads. Calls of the application's stores and of folders that do not return are left
  /// behind.
  ~SharedStores();

  bool is_empty() const noexcept { return clients_.empty(); }
  /// Begins a search that may take as long as compiling is expected to take, or two seconds. Null if no store
  /// should be asked now.
  std::unique_ptr<Fetch> fetch(const Key& key, std::optional<std::chrono::nanoseconds> expected);
  /// What to do with a program that this cache is about to compile, as the first store says that has leases. Takes
  /// at most 150 ms, unless a file with a password is on a network that does not answer.
  FleetLeases::Turn ask_fleet(const Key& key, FleetLeases::Expected expected, bool has_place, bool ignore_entry);
  /// Whether it is too early to ask the fleet about this program again.
  bool waits_for_fleet(const Digest& key) const { return leases_.is_waiting(key); }
  /// Whether other machines compile programs that this cache waits for.
  bool waits_for_fleet() const { return leases_.is_waiting(); }
  /// Whether a store has an entry for this program that could not be used.
  bool has_refused(const Digest& key) const;
  /// Asks all stores again for a program that they lacked.
  void forget_lacking(const Digest& key);
  /// Uploads an entry to all stores, or to those before `place`, in the background. The lease is given back when
  /// its store has the entry, or failed.
  void upload(const Key& key, const Sealed& sealed, std::size_t before, std::shared_ptr<HeldLease> lease = {});
  static constexpr std::size_t to_all = ~std::size_t{0};
  bool takes_uploads() const;
  /// Whether uploads leave out facts and source files.
  bool strips_facts() const noexcept { return !settings_.share_facts; }
  /// Signs the entry with the keys of this user, if there are any.
  std::vector<std::byte> sign(std::vector<std::byte> sealed);
  /// Waits until all queued uploads have finished or failed; returns false if that takes longer than
  /// upload_limit().
  bool wait_for_uploads();
  std::chrono::milliseconds upload_limit() const noexcept { return settings_.upload_limit; }
  void refuse(std::size_t place, const Key& key, const Error& why);
  void count_hit(std::size_t place);

  std::vector<StoreStats> stats() const;
  std::uint64_t failures() const;

  /// Trusted and own keys.
  class Keys;
  /// What others need to get entries on threads that may outlive this.
  struct Sources {
    Digest identity;
    std::vector<std::shared_ptr<StoreClient>> clients;
    std::shared_ptr<Keys> keys;

    /// Opens an entry, if it is the one wanted, sound and trusted.
    Result<store::OpenedEntry> check(StoreClient& client, const EntryAddress& wanted,
                                     std::span<const std::byte> sealed) const;
  };
  Sources sources() const { return {identity_, clients_, keys_}; }

 private:
  struct Chosen {
    std::vector<SharedStore> stores;
    std::string signing_key;
    bool share_facts;
    std::chrono::milliseconds upload_limit;
  };

  /// What the options set, else the environment and the config files.
  static Chosen settings_of(const CacheOptions& options, const store::Settings& settings);
  /// `manifest` describes the identity.
  void add(const SharedStore& store, const std::string& manifest, const void* owner);
  /// Asks a store that did not answer before, in the background.
  void probe(const std::shared_ptr<StoreClient>& client, const Key& key);

  const Digest identity_;
  const Chosen settings_;
  const std::size_t queue_;
  const std::shared_ptr<ClosableLog> log_;
  const std::shared_ptr<Keys> keys_;
  std::vector<std::shared_ptr<StoreClient>> clients_;
  std::vector<std::unique_ptr<Uploader>> uploaders_;
  /// Cancels probes and requests for leases.
  const std::shared_ptr<base::Event> ending_ = std::make_shared<base::Event>();
  FleetLeases leases_{ending_};
  /// Declared last: its threads end first.
  CallThreads threads_;
};

}  // namespace kiln::cache
