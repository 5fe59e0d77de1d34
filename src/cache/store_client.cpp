#include "cache/store_client.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "cache/flights.hpp"

namespace kiln::cache {
namespace {

/// How long a store is not asked again for a program that it did not have.
constexpr auto lacking_limit = std::chrono::seconds(30);
constexpr std::size_t most_lacking = 16384;
/// How long a server that refuses leases is not asked for them.
constexpr auto refused_lease_limit = std::chrono::seconds(60);
/// A call that takes less than this is not late.
constexpr auto least_late = std::chrono::milliseconds(100);
/// Distinct messages that are logged as warnings.
constexpr std::size_t most_logged = 64;

/// Whether the store works, and only this entry cannot be used: it is too large, or others can write to its folder.
bool is_about_entry(const Error& error) {
  return error.code() == ErrorCode::unsupported || error.code() == ErrorCode::untrusted;
}

}  // namespace

void ClosableLog::write(LogLevel level, const std::string& message) {
  const base::MutexLock lock(mutex_);
  if (!log_) return;
  try {
    log_->write(level, message);
  } catch (...) {
    // There is no one to report that to.
  }
}

void ClosableLog::close() {
  const base::MutexLock lock(mutex_);
  log_.reset();
}

StoreClient::StoreClient(Settings settings, std::shared_ptr<ClosableLog> log)
    : settings_(std::move(settings)),
      log_(std::move(log)),
      reading_(settings_.timeout),
      writing_(settings_.timeout),
      verification_(settings_.verify) {}

CircuitBreaker::Turn StoreClient::ask_to_read(const Digest& key, Clock::time_point now) {
  using Turn = CircuitBreaker::Turn;
  if (settings_.mode == StoreMode::write_only || unusable_) return Turn::skip;
  const Turn turn = reading_.ask(now);
  if (turn != Turn::call) return turn;
  const base::MutexLock lock(mutex_);
  const auto found = lacking_.find(key);
  if (found == lacking_.end()) return turn;
  if (now < found->second.until) return Turn::skip;
  lacking_.erase(found);
  return turn;
}

Result<EntryPlace*> StoreClient::place() {
  const base::MutexLock lock(open_mutex_);
  if (place_ != nullptr) return place_.get();
  const auto set_opening = [this](bool is_opening) {
    const base::MutexLock guard(mutex_);
    is_opening_ = is_opening;
    opened_.notify_all();
  };
  set_opening(true);
  auto opened = without_exceptions([&] { return settings_.open(); });
  if (opened) {
    place_ = std::move(opened->place);
    verification_ = opened->verification;
    objects_ = place_->objects();
    set_opening(false);
    return place_.get();
  }
  set_opening(false);
  // Otherwise it may be opened later: for example, a file with a password is not mounted yet.
  if (opened.error().code() == ErrorCode::unsupported && !unusable_.exchange(true))
    log_->write(LogLevel::warning, fmt::format("{} is not used: {}", settings_.name, opened.error().message()));
  return Error(unusable_ ? ErrorCode::cancelled : ErrorCode::io, opened.error().message());
}

Verification StoreClient::verification() {
  static_cast<void>(place());
  return verification_;
}

bool StoreClient::is_new(std::string_view problem) {
  const base::MutexLock lock(mutex_);
  return logged_.size() < most_logged && logged_.emplace(problem).second;
}

Result<std::optional<StoreClient::Bytes>> StoreClient::get(const EntryAddress& address,
                                                           const store::CallLimit& limit, Reading& reading) {
  auto start = Clock::now();
  // A folder may hang when it is opened. A server is only asked afterwards: loading libcurl is not its fault.
  if (!settings_.keeps_limits) reading.start = start.time_since_epoch().count();
  auto answer = without_exceptions([&]() -> Result<std::optional<Bytes>> {
    EntryPlace* const place = KILN_TRY(this->place());
    start = Clock::now();
    if (settings_.keeps_limits) reading.start = start.time_since_epoch().count();
    return place->get(address, limit);
  });
  const auto now = Clock::now();
  if (!answer) {
    if (answer.error().code() == ErrorCode::cancelled) {
      if (reading.is_probe) reading_.probe_dropped(now);
    } else if (is_about_entry(answer.error())) {
      static_cast<void>(reading_.succeeded());
      refuse(address, answer.error());
    } else if (!reading.counted.exchange(true)) {
      if (reading.is_probe) {
        ++errors_;
        log_failure("asked for " + address.key.name, answer.error());
        reading_.probe_failed(now);
      } else {
        count_error("asked for " + address.key.name, answer.error());
      }
    }
    return answer;
  }
  record_latency(now - start);
  if (reading_.succeeded()) log_->write(LogLevel::info, fmt::format("{} answers again", settings_.name));
  if (*answer) {
    bytes_read_ += (*answer)->size();
  } else {
    ++misses_;
    note_lacking(address.key.digest, false);
  }
  return answer;
}

void StoreClient::unanswered(Reading& reading) {
  if (reading.start == 0) return;  // The call has not begun, because others hang.
  report_waiting(reading);
  // The caller may have waited for another store before.
  if (Clock::duration(reading.reported) < least_late) return;
  if (reading.counted.exchange(true)) return;
  count_error("asked for a program", Error(ErrorCode::timed_out, "it does not answer in time"));
}

void StoreClient::count_error(std::string_view when, const Error& why) {
  ++errors_;
  log_failure(when, why);
  log_opened(reading_.failed(Clock::now()), "asked");
}

std::size_t StoreClient::useful_streams() {
  constexpr std::size_t of_application = 8;
  if (!place()) return 1;
  const store::ObjectStore* const objects = objects_;
  return objects != nullptr ? objects->useful_streams() : of_application;
}

void StoreClient::get_many(std::span<const EntryAddress> addresses, const store::CallLimit& limit,
                           const Receive& receive) {
  store::ObjectStore* const objects = place() ? objects_.load() : nullptr;
  if (objects == nullptr) {
    for (std::size_t i = 0; i < addresses.size() && is_asked(); ++i) {
      Reading reading;
      if (auto answer = get(addresses[i], limit, reading)) receive(i, *std::move(answer));
    }
    return;
  }
  std::vector<std::string> paths;
  for (const auto& [identity, key] : addresses) paths.push_back(store::entry_path(identity.hex(), key.digest));
  std::optional<Error> failure;
  const auto note = [&](std::size_t i, Result<std::optional<Bytes>> answer) {
    if (answer) {
      static_cast<void>(reading_.succeeded());
      if (*answer) {
        bytes_read_ += (*answer)->size();
      } else {
        ++misses_;
        note_lacking(addresses[i].key.digest, false);
      }
      receive(i, *std::move(answer));
    } else if (is_about_entry(answer.error())) {
      refuse(addresses[i], answer.error());
    } else if (!failure) {
      failure = std::move(answer).error();
    }
  };
  const auto called = without_exceptions([&]() -> Result<void> {
    objects->get_many(paths, limit, note);
    return {};
  });
  if (!called) failure = called.error();
  if (failure && failure->code() != ErrorCode::cancelled) count_error("asked for many programs", *failure);
}

void StoreClient::wait_until_open(Clock::time_point when) {
  const base::MutexLock lock(mutex_);
  while (is_opening_ && Clock::now() < when) opened_.wait_until(mutex_, when);
}

bool StoreClient::has_leases() const noexcept {
  const store::ObjectStore* const objects = objects_;
  return settings_.mode != StoreMode::write_only && objects != nullptr && objects->has_leases();
}

bool StoreClient::gives_leases() const noexcept {
  return has_leases() && is_asked() && Clock::now().time_since_epoch().count() >= no_leases_until_;
}

Result<store::LeaseAnswer> StoreClient::take_lease(const store::Lease& lease, bool only_ask,
                                                   const store::CallLimit& limit) {
  auto answer = without_exceptions([&] { return objects_.load()->take_lease(lease, only_ask, limit); });
  if (answer) {
    static_cast<void>(reading_.succeeded());
  } else if (answer.error().code() == ErrorCode::unsupported) {
    // It answers everything else: a replica gives no leases, and neither does a server without free memory.
    refused_leases(answer.error());
  } else if (answer.error().code() != ErrorCode::cancelled) {
    count_error("asked for a lease", answer.error());
  }
  return answer;
}

void StoreClient::refused_leases(const Error& why) {
  no_leases_until_ = (Clock::now() + refused_lease_limit).time_since_epoch().count();
  log_->write(is_new("lease") ? LogLevel::info : LogLevel::debug,
              fmt::format("{} gives no leases, so several machines may compile the same program: {}",
                          settings_.name, why.message()));
}

void StoreClient::release_lease(const store::Lease& lease, const store::CallLimit& limit) {
  // It expires by itself.
  if (!is_read()) return;
  const auto released = without_exceptions([&] { return objects_.load()->release_lease(lease, limit); });
  if (released) return;
  log_->write(LogLevel::debug, released.error().message());
  // Leases that nobody gives back would make others wait for programs that do not compile.
  if (released.error().code() == ErrorCode::denied) refused_leases(released.error());
}

void StoreClient::stopped_waiting(Reading& reading) {
  if (reading.start != 0) report_waiting(reading);
}

void StoreClient::report_waiting(Reading& reading) {
  const auto now = Clock::now();
  const Clock::rep since = now.time_since_epoch().count() - reading.start;
  const Clock::rep reported = reading.reported.exchange(since);
  log_opened(reading_.waited(now, Clock::duration(std::max<Clock::rep>(since - reported, 0))), "asked");
}

void StoreClient::log_failure(std::string_view when, const Error& why) {
  // One warning for each kind of problem: messages may differ in names and times.
  log_->write(is_new(to_string(why.code())) ? LogLevel::warning : LogLevel::debug,
              fmt::format("{} failed when it was {}: {}", settings_.name, when, why.message()));
}

void StoreClient::log_opened(bool opened, std::string_view what) {
  if (opened)
    log_->write(LogLevel::info, fmt::format("{} is not {} for a while, because it fails", settings_.name, what));
}

void StoreClient::refuse(const EntryAddress& address, const Error& why) {
  if (has_refused(address.key.digest)) return;
  ++refusals_;
  // A store may be full of entries of an unknown signer: once for each signer.
  const std::string reason = why.code() == ErrorCode::untrusted ? why.message() : address.key.name + why.message();
  log_->write(
      is_new(reason) ? LogLevel::warning : LogLevel::debug,
      fmt::format("the copy of {} in {} cannot be used: {}", address.key.name, settings_.name, why.message()));
  note_lacking(address.key.digest, true);
}

bool StoreClient::has_refused(const Digest& key) const {
  const base::MutexLock lock(mutex_);
  const auto found = lacking_.find(key);
  return found != lacking_.end() && found->second.refused && Clock::now() < found->second.until;
}

void StoreClient::forget_lacking(const Digest& key) {
  const base::MutexLock lock(mutex_);
  lacking_.erase(key);
}

void StoreClient::note_lacking(const Digest& key, bool refused) {
  const base::MutexLock lock(mutex_);
  if (lacking_.size() >= most_lacking) lacking_.clear();
  lacking_.insert_or_assign(key, Lacking{Clock::now() + lacking_limit, refused});
}

bool StoreClient::takes_uploads() const noexcept {
  return settings_.mode != StoreMode::read_only && !refuses_uploads_ && !unusable_;
}

Result<void> StoreClient::put(const EntryAddress& address, std::span<const std::byte> sealed,
                              const store::CallLimit& limit) {
  const auto turn = writing_.ask(Clock::now());
  if (turn == CircuitBreaker::Turn::skip) {
    count_dropped_upload(address, "it did not answer before");
    return {};
  }
  const bool is_probe = turn == CircuitBreaker::Turn::probe;
  auto put = without_exceptions([&]() -> Result<void> {
    EntryPlace* const place = KILN_TRY(this->place());
    return place->put(address, sealed, limit);
  });
  if (put) {
    ++uploads_;
    bytes_written_ += sealed.size();
    if (writing_.succeeded()) log_->write(LogLevel::info, fmt::format("{} takes uploads again", settings_.name));
    const base::MutexLock lock(mutex_);
    lacking_.erase(address.key.digest);
    return put;
  }
  if (put.error().code() == ErrorCode::cancelled) {
    if (is_probe) writing_.probe_dropped(Clock::now());
    return put;
  }
  ++upload_errors_;
  // Permanent, or a matter of this entry: the store answers.
  if (put.error().code() == ErrorCode::denied || is_about_entry(put.error())) {
    static_cast<void>(writing_.succeeded());
    if (put.error().code() == ErrorCode::denied && !refuses_uploads_.exchange(true))
      log_->write(LogLevel::warning,
                  fmt::format("{} is only read from now on: {}", settings_.name, put.error().message()));
    else
      log_failure("sent " + address.key.name, put.error());
    return put;
  }
  log_failure("sent " + address.key.name, put.error());
  if (is_probe)
    writing_.probe_failed(Clock::now());
  else
    log_opened(writing_.failed(Clock::now()), "written to");
  return put;
}

void StoreClient::count_dropped_upload(const EntryAddress& address, std::string_view why) {
  ++upload_errors_;
  log_->write(is_new(why) ? LogLevel::warning : LogLevel::debug,
              fmt::format("{} was not uploaded to {}: {}", address.key.name, settings_.name, why));
}

void StoreClient::refuse_unsigned_upload(LogLevel level) {
  if (lacks_key_.exchange(true)) return;
  log_->write(level, fmt::format("nothing is uploaded to {}: entries there need a signature, and this user has no "
                                 "private key; make one with `kiln key new NAME`",
                                 settings_.name));
}

void StoreClient::record_latency(Clock::duration took) {
  const double microseconds = std::max(1.0, std::chrono::duration<double, std::micro>(took).count());
  const auto place = static_cast<std::size_t>(std::ceil(4 * std::log2(microseconds)));
  ++latencies_[std::min(place, latencies_.size() - 1)];
}

StoreStats StoreClient::stats() const {
  StoreStats stats;
  stats.name = settings_.name;
  stats.mode = settings_.mode;
  if (stats.mode == StoreMode::read_write && (refuses_uploads_ || lacks_key_)) stats.mode = StoreMode::read_only;
  stats.verify = verification_;
  stats.usable = !unusable_;
  stats.reading = !reading_.is_open();
  stats.writing = !writing_.is_open();
  stats.hits = hits_;
  stats.misses = misses_;
  stats.errors = errors_;
  stats.refusals = refusals_;
  stats.races_won = races_won_;
  stats.races_lost = races_lost_;
  stats.leases = leases_;
  stats.lease_waits = lease_waits_;
  stats.lease_timeouts = lease_timeouts_;
  stats.uploads = uploads_;
  stats.upload_errors = upload_errors_;
  stats.bytes_read = bytes_read_;
  stats.bytes_written = bytes_written_;
  std::uint64_t answers = 0;
  std::array<std::uint64_t, std::tuple_size_v<decltype(latencies_)>> counts{};
  for (std::size_t i = 0; i < counts.size(); ++i) answers += counts[i] = latencies_[i];
  const auto percentile = [&](double share) {
    std::uint64_t left = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(answers)));
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (left <= counts[i] && left > 0)
        return std::chrono::nanoseconds(static_cast<std::int64_t>(1000 * std::exp2(static_cast<double>(i) / 4)));
      left -= std::min(left, counts[i]);
    }
    return std::chrono::nanoseconds(0);
  };
  stats.latency_p50 = percentile(0.5);
  stats.latency_p90 = percentile(0.9);
  stats.latency_p99 = percentile(0.99);
  return stats;
}

}  // namespace kiln::cache
