#include "cache/store_client.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace kiln::cache {
namespace {

/// How long it is believed that a store lacks a program.
constexpr auto lacking_limit = std::chrono::seconds(30);
constexpr std::size_t most_lacking = 16384;
/// Distinct messages that are logged as warnings.
constexpr std::size_t most_logged = 64;

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

CircuitBreaker::Turn StoreClient::ask_to_read(const Digest& key, Clock::time_point now) {
  using Turn = CircuitBreaker::Turn;
  if (settings_.mode == StoreMode::write_only || unusable_ || reading_.would_skip(now)) return Turn::skip;
  {
    const base::MutexLock lock(mutex_);
    if (const auto found = lacking_.find(key); found != lacking_.end()) {
      if (now < found->second) return Turn::skip;
      lacking_.erase(found);
    }
  }
  return reading_.ask(now);
}

EntryPlace* StoreClient::place() {
  const base::MutexLock lock(open_mutex_);
  if (place_ == nullptr && !unusable_) {
    auto opened = settings_.open();
    if (opened) {
      place_ = std::move(*opened);
      const bool trusted = !settings_.verify && settings_.is_trusted && settings_.is_trusted();
      verification_ = settings_.verify.value_or(trusted ? Verification::off : Verification::required);
    } else {
      unusable_ = true;
      log_->write(LogLevel::warning, fmt::format("{} is not used: {}", settings_.name, opened.error().message()));
    }
  }
  return place_.get();
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
  EntryPlace* const place = this->place();
  if (place == nullptr) {
    reading_.gave_up_probe();
    return std::optional<Bytes>{};
  }
  const auto start = Clock::now();
  auto answer = place->get(address, limit);
  const auto took = Clock::now() - start;
  if (!answer) {
    if (answer.error().code() == ErrorCode::cancelled)
      reading_.gave_up_probe();
    else if (!reading.counted.exchange(true))
      failed(reading_, fmt::format("asking for {}", address.key.name), answer.error(), took);
    return answer;
  }
  record_latency(took);
  if (reading_.succeeded()) log_->write(LogLevel::info, fmt::format("{} answers again", settings_.name));
  if (*answer) {
    bytes_read_ += (*answer)->size();
    return answer;
  }
  ++misses_;
  const base::MutexLock lock(mutex_);
  if (lacking_.size() >= most_lacking) lacking_.clear();
  lacking_[address.key.digest] = Clock::now() + lacking_limit;
  return answer;
}

void StoreClient::unanswered(Reading& reading, Clock::duration waited) {
  if (reading.counted.exchange(true)) return;
  failed(reading_, "asking for a program", Error(ErrorCode::timed_out, "it does not answer in time"), waited);
}

void StoreClient::failed(CircuitBreaker& breaker, std::string_view what, const Error& why, Clock::duration waited) {
  ++(&breaker == &reading_ ? errors_ : upload_errors_);
  const bool opened = breaker.failed(Clock::now(), &breaker == &reading_ ? waited : Clock::duration::zero());
  log_->write(is_new(why.message()) ? LogLevel::warning : LogLevel::debug,
              fmt::format("{} failed when {}: {}", settings_.name, what, why.message()));
  if (opened)
    log_->write(LogLevel::info, fmt::format("{} is not {} for a while, because it fails", settings_.name,
                                            &breaker == &reading_ ? "asked" : "written to"));
}

void StoreClient::refuse(const EntryAddress& address, const Error& why) {
  ++refusals_;
  // A store of another group's entries is full of them: once for each signer.
  const std::string reason =
      why.code() == ErrorCode::untrusted ? why.message() : fmt::format("{}: {}", address.key.name, why.message());
  log_->write(
      is_new(reason) ? LogLevel::warning : LogLevel::debug,
      fmt::format("the copy of {} in {} cannot be used: {}", address.key.name, settings_.name, why.message()));
  const base::MutexLock lock(mutex_);
  if (lacking_.size() >= most_lacking) lacking_.clear();
  lacking_[address.key.digest] = Clock::now() + lacking_limit;
}

bool StoreClient::takes_uploads() const noexcept {
  return settings_.mode != StoreMode::read_only && !refuses_uploads_ && !unusable_;
}

Result<void> StoreClient::put(const EntryAddress& address, std::span<const std::byte> sealed,
                              const store::CallLimit& limit) {
  EntryPlace* const place = this->place();
  if (place == nullptr) return {};
  if (writing_.ask(Clock::now()) == CircuitBreaker::Turn::skip) {
    count_dropped_upload(address, "it does not answer");
    return {};
  }
  auto put = place->put(address, sealed, limit);
  if (put) {
    ++uploads_;
    bytes_written_ += sealed.size();
    if (writing_.succeeded()) log_->write(LogLevel::info, fmt::format("{} takes uploads again", settings_.name));
    const base::MutexLock lock(mutex_);
    lacking_.erase(address.key.digest);
  } else if (put.error().code() == ErrorCode::cancelled) {
    writing_.gave_up_probe();
  } else if (put.error().code() == ErrorCode::denied) {
    ++upload_errors_;
    if (!refuses_uploads_.exchange(true))
      log_->write(LogLevel::warning,
                  fmt::format("{} is only read from now on: {}", settings_.name, put.error().message()));
  } else {
    failed(writing_, fmt::format("{} was uploaded", address.key.name), put.error(), {});
  }
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
  stats.verify = settings_.verify.value_or(verification_);
  stats.usable = !unusable_;
  stats.reading = !reading_.is_open();
  stats.writing = !writing_.is_open();
  stats.hits = hits_;
  stats.misses = misses_;
  stats.errors = errors_;
  stats.refusals = refusals_;
  stats.races_won = races_won_;
  stats.races_lost = races_lost_;
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
