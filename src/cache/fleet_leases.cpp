#include "cache/fleet_leases.hpp"

#include <algorithm>
#include <random>
#include <utility>

#include <fmt/format.h>

namespace kiln::cache {
namespace {

/// How long a server may take to answer before the program is compiled without a lease.
constexpr auto answer_limit = std::chrono::milliseconds(150);
constexpr auto release_limit = std::chrono::milliseconds(150);
/// A lease is longer than the expected time, because machines differ.
constexpr auto shortest_lease = std::chrono::milliseconds(1000);
constexpr auto longest_lease = std::chrono::milliseconds(60'000);
constexpr auto shortest_pause = std::chrono::milliseconds(5);
constexpr auto longest_pause = std::chrono::milliseconds(250);
/// For each program that is waited for, so that a cache asks at most fifty times a second.
constexpr auto pause_for_each = std::chrono::milliseconds(20);
constexpr std::size_t most_waits = 4096;

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace

HeldLease::~HeldLease() {
  if (!ending_->is_set()) client_->release_lease(lease_, {StoreClient::Clock::now() + release_limit});
}

FleetLeases::FleetLeases(std::shared_ptr<const base::Event> ending)
    : token_(random_token()), ending_(std::move(ending)) {}

std::optional<FleetLeases::Wait> FleetLeases::wait_for(const Digest& key) const {
  const base::MutexLock lock(mutex_);
  const auto found = waits_.find(key);
  return found != waits_.end() ? std::optional(found->second) : std::nullopt;
}

bool FleetLeases::is_waiting(const Digest& key) const {
  const auto wait = wait_for(key);
  return wait && Clock::now() < wait->ask_again;
}

bool FleetLeases::is_waiting() const {
  const base::MutexLock lock(mutex_);
  return !waits_.empty();
}

FleetLeases::Turn FleetLeases::ask(const std::shared_ptr<StoreClient>& client, const EntryAddress& address,
                                   bool may_take, std::optional<std::chrono::nanoseconds> expected) {
  const Digest& key = address.key.digest;
  const auto before = wait_for(key);
  if (before && Clock::now() < before->ask_again) return {.ask_again = before->ask_again};
  const auto duration = expected
                            ? std::clamp<std::chrono::nanoseconds>(2 * *expected, shortest_lease, longest_lease)
                            : std::chrono::nanoseconds(unknown_time);
  const store::Lease lease{.path = store::entry_path(address.identity.hex(), key),
                           .token = token_,
                           .duration = std::chrono::duration_cast<std::chrono::milliseconds>(duration)};
  const store::CallLimit limit{Clock::now() + answer_limit, ending_->descriptor()};
  // Who waits most often finds that the program is there, or that its holder still has the lease.
  auto answer = client->take_lease(lease, !may_take || before.has_value(), limit);
  if (may_take && before && answer && !answer->is_held && !answer->object)
    answer = client->take_lease(lease, false, limit);
  const auto now = Clock::now();
  Turn turn;
  if (answer && answer->is_taken) turn.lease = std::make_shared<HeldLease>(client, lease, ending_);
  if (answer) turn.sealed = std::move(answer->object);
  if (turn.sealed && before) client->count_lease_wait();
  if (turn.lease && !turn.sealed) client->count_lease();
  const Wait wait = before.value_or(Wait{now, now});
  const auto waited = now - wait.since;
  const auto patience = expected ? std::min<std::chrono::nanoseconds>(*expected, longest_lease) : unknown_time;
  const bool is_late = !answer && answer.error().code() == ErrorCode::timed_out;
  // A holder does not stop because one answer is late.
  const bool is_held = (answer && answer->is_held && !turn.sealed) || (is_late && before);
  const bool waits = is_held && waited < patience;
  if ((is_held || is_late) && !waits) client->count_lease_timeout();
  const base::MutexLock lock(mutex_);
  if (!waits) {
    waits_.erase(key);
    return turn;
  }
  if (waits_.size() >= most_waits) waits_.clear();
  const auto pause = std::clamp<Clock::duration>(waited / 4, shortest_pause, longest_pause);
  turn.ask_again = now + pause + waits_.size() * pause_for_each;
  waits_.insert_or_assign(key, Wait{wait.since, *turn.ask_again});
  return turn;
}

}  // namespace kiln::cache
