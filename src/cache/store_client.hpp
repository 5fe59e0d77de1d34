#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/identity.hpp>
#include <kiln/log.hpp>
#include <kiln/stats.hpp>
#include <kiln/store.hpp>

#include "base/mutex.hpp"
#include "cache/circuit_breaker.hpp"
#include "store/object_store.hpp"
#include "store/store_url.hpp"

namespace kiln::cache {

/// A log whose sink belongs to somebody who may end first.
class ClosableLog {
 public:
  explicit ClosableLog(Log log) : log_(std::move(log)) {}
  /// Drops exceptions of the sink.
  void write(LogLevel level, const std::string& message) KILN_EXCLUDES(mutex_);
  /// No message is written any longer when this returns.
  void close() KILN_EXCLUDES(mutex_);

 private:
  base::Mutex mutex_;
  std::optional<Log> log_ KILN_GUARDED_BY(mutex_);
};

/// Where a store client gets and puts entries. Its calls may come from any number of threads.
class EntryPlace {
 public:
  virtual ~EntryPlace() = default;
  virtual Result<std::optional<std::vector<std::byte>>> get(const EntryAddress& address,
                                                            const store::CallLimit& limit) = 0;
  virtual Result<void> put(const EntryAddress& address, std::span<const std::byte> sealed,
                           const store::CallLimit& limit) = 0;
  /// What a folder or a server can do beyond that; null for a store of the application.
  virtual store::ObjectStore* objects() noexcept { return nullptr; }
};

/// One shared store of a cache: calls it, skips it while it does not answer, remembers for a while what it lacks,
/// and counts. Its threads share ownership, so it may outlive the cache. Safe from any thread.
class StoreClient {
 public:
  using Clock = std::chrono::steady_clock;
  using Bytes = std::vector<std::byte>;

  /// An open place, and whether its entries need a signature.
  struct Opened {
    std::unique_ptr<EntryPlace> place;
    Verification verification;
  };

  struct Settings {
    /// For messages and statistics; without secrets.
    std::string name;
    StoreMode mode = StoreMode::read_write;
    std::chrono::milliseconds timeout = default_store_timeout;
    /// Until it is open.
    Verification verify = Verification::required;
    /// Whether its calls return by their limit.
    bool keeps_limits = false;
    /// Opens the place with the first call.
    std::function<Result<Opened>()> open;
  };

  StoreClient(Settings settings, std::shared_ptr<ClosableLog> log);

  const Settings& settings() const noexcept { return settings_; }
  /// Whether entries need a signature. May wait for a folder that does not answer.
  Verification verification();

  /// Whether a request for this program should ask the store. Takes no lock that is held during a call.
  CircuitBreaker::Turn ask_to_read(const Digest& key, Clock::time_point now);
  /// Returns a probe turn that cannot be used.
  void drop_probe() { reading_.probe_dropped(Clock::now()); }
  bool is_read() const noexcept { return !reading_.is_open(); }

  /// One call of get(), which a caller may stop waiting for.
  struct Reading {
    bool is_probe = false;
    std::atomic<Clock::rep> start{0};
    /// Since `start`: the waiting time that is reported.
    std::atomic<Clock::rep> reported{0};
    /// Its failure is counted.
    std::atomic<bool> counted{false};
  };
  /// Errors, and exceptions as well, are counted, logged and reported to the circuit breaker.
  Result<std::optional<Bytes>> get(const EntryAddress& address, const store::CallLimit& limit, Reading& reading);
  /// A caller still waits for the call. Counts as a failure if the call has taken long.
  void unanswered(Reading& reading);
  /// The caller does not wait for the call any longer.
  void stopped_waiting(Reading& reading);

  /// How many threads are worthwhile to get many entries.
  std::size_t useful_streams();
  /// Whether it is read, and answers.
  bool is_asked() const noexcept { return settings_.mode != StoreMode::write_only && !unusable_ && is_read(); }
  /// Gets entries in as few round trips as the store permits, and passes on the answers without errors, on this
  /// thread. Counts and logs as get() does.
  using Receive = std::function<void(std::size_t place, std::optional<Bytes> sealed)>;
  void get_many(std::span<const EntryAddress> addresses, const store::CallLimit& limit, const Receive& receive);

  /// Whether it has leases, which is known once it is open. Waits for nothing.
  bool has_leases() const noexcept;
  /// Whether they can be asked for now.
  bool gives_leases() const noexcept;
  /// Waits while another thread opens it, at most until `when`.
  void wait_until_open(Clock::time_point when) KILN_EXCLUDES(mutex_);
  /// Only if it has leases. Errors are counted, logged and reported to the circuit breaker. A server that refuses
  /// leases is not asked for them again for a while.
  Result<store::LeaseAnswer> take_lease(const store::Lease& lease, bool only_ask, const store::CallLimit& limit);
  void release_lease(const store::Lease& lease, const store::CallLimit& limit);
  void count_lease() { ++leases_; }
  void count_lease_wait() { ++lease_waits_; }
  void count_lease_timeout() { ++lease_timeouts_; }
  /// The median time of an answer; 0 before the first one.
  std::chrono::nanoseconds latency() const { return stats().latency_p50; }
  /// Whether it has an entry for this program that could not be used.
  bool has_refused(const Digest& key) const KILN_EXCLUDES(mutex_);
  /// Asks it again for a program that it lacked.
  void forget_lacking(const Digest& key) KILN_EXCLUDES(mutex_);

  void count_hit() { ++hits_; }
  /// The answer could not be used: it was damaged, of another program, or had no trusted signature. Counts and logs
  /// it once while the store is not asked for this program.
  void refuse(const EntryAddress& address, const Error& why);
  void count_race(bool store_won) { ++(store_won ? races_won_ : races_lost_); }

  /// Whether entries are uploaded to it.
  bool takes_uploads() const noexcept;
  /// Errors, and exceptions as well, are counted, logged and reported to the circuit breaker.
  Result<void> put(const EntryAddress& address, std::span<const std::byte> sealed, const store::CallLimit& limit);
  void count_dropped_upload(const EntryAddress& address, std::string_view why);
  /// An entry was not uploaded because it has no signature, the store needs one, and this user has no key.
  void refuse_unsigned_upload(LogLevel level);

  StoreStats stats() const;
  /// Failed calls, refused entries and dropped uploads.
  std::uint64_t failures() const noexcept { return errors_ + refusals_ + upload_errors_; }

 private:
  /// Opens it if it is not open.
  Result<EntryPlace*> place();
  /// Whether this is not logged yet. Notes it.
  bool is_new(std::string_view problem);
  void log_failure(std::string_view when, const Error& why);
  void log_opened(bool opened, std::string_view what);
  void report_waiting(Reading& reading);
  void note_lacking(const Digest& key, bool refused);
  void refused_leases(const Error& why);
  void record_latency(Clock::duration took);
  /// Counts, logs and reports an error of a call for entries.
  void count_error(std::string_view when, const Error& why);

  const Settings settings_;
  const std::shared_ptr<ClosableLog> log_;
  CircuitBreaker reading_;
  CircuitBreaker writing_;
  /// It can never be opened: it needs a library that is not installed.
  std::atomic<bool> unusable_{false};
  /// It refuses what is put.
  std::atomic<bool> refuses_uploads_{false};
  /// Until when it is not asked for leases.
  std::atomic<Clock::rep> no_leases_until_{0};
  /// There is no key to sign what is put.
  std::atomic<bool> lacks_key_{false};
  std::atomic<Verification> verification_;
  /// Of the open place; null before, and for stores of the application.
  std::atomic<store::ObjectStore*> objects_{nullptr};

  std::atomic<std::uint64_t> hits_{0}, misses_{0}, errors_{0}, refusals_{0}, races_won_{0}, races_lost_{0};
  std::atomic<std::uint64_t> leases_{0}, lease_waits_{0}, lease_timeouts_{0};
  std::atomic<std::uint64_t> uploads_{0}, upload_errors_{0}, bytes_read_{0}, bytes_written_{0};
  /// At place i: how many answers took up to 2^(i/4) microseconds, and more than at the place before.
  std::array<std::atomic<std::uint64_t>, 128> latencies_{};

  base::Mutex open_mutex_;
  std::unique_ptr<EntryPlace> place_ KILN_GUARDED_BY(open_mutex_);

  mutable base::Mutex mutex_;
  base::Condition opened_;
  bool is_opening_ KILN_GUARDED_BY(mutex_) = false;
  struct Lacking {
    /// Until when it is not asked for that again.
    Clock::time_point until;
    /// It had an entry that could not be used.
    bool refused;
  };
  std::map<Digest, Lacking> lacking_ KILN_GUARDED_BY(mutex_);
  std::set<std::string, std::less<>> logged_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::cache
