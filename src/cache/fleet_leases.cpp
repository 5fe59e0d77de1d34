#include "cache/fleet_leases.hpp"

#include <algorithm>
#include <random>
#include <utility>

#include <fmt/format.h>

namespace kiln::cache {
namespace {

constexpr auto release_limit = std::chrono::milliseconds(150);
/// A lease is longer than the expected time, because machines differ.
constexpr auto shortest_lease = std::chrono::milliseconds(1000);
constexpr auto longest_lease = std::chrono::milliseconds(60'000);
constexpr auto shortest_pause = std::chrono::milliseconds(5);
constexpr auto longest_pause = std::chrono::milliseconds(250);
/// For each program that is waited for, so that a cache that waits for many asks less often for each.
constexpr auto pause_for_each = std::chrono::milliseconds(20);
constexpr auto longest_pause_for_all = std::chrono::milliseconds(500);
/// Who has not asked again for so long does not wait any longer.
constexpr auto forgotten_after = std::chrono::seconds(2);
constexpr std::size_t most_waits = 4096;

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

double random_share() {
  std::random_device random;
  return static_cast<double>(random()) / static_cast<double>(std::random_device::max());
}

}  // namespace

HeldLease::~HeldLease() {
  if (!ending_->is_set()) client_->release_lease(lease_, {StoreClient::Clock::now() + release_limit});
}

FleetLeases::FleetLeases(std::shared_ptr<const base::Event> ending)
    : token_(random_token()), jitter_(random_share()), ending_(std::move(ending)) {}

std::optional<FleetLeases::Wait> FleetLeases::wait_of(const Digest& key, Clock::time_point now) const {
  const base::MutexLock lock(mutex_);
  const auto found = waits_.find(key);
  if (found == waits_.end() || now > found->second.ask_again + forgotten_after) return std::nullopt;
  return found->second;
}

bool FleetLeases::is_waiting(const Digest& key) const {
  const auto now = Clock::now();
  const auto wait = wait_of(key, now);
  return wait && now < wait->ask_again;
}

bool FleetLeases::is_waiting() const {
  const auto now = Clock::now();
  const base::MutexLock lock(mutex_);
  return std::ranges::any_of(waits_,
                             [&](const auto& each) { return now < each.second.ask_again + forgotten_after; });
}

void FleetLeases::stop_waiting(const Digest& key) {
  const base::MutexLock lock(mutex_);
  waits_.erase(key);
}

FleetLeases::Turn FleetLeases::ask(const std::shared_ptr<StoreClient>& client, const Question& question) {
  const auto& [address, expected, will_upload, has_place, ignore_entry] = question;
  const bool take = will_upload && has_place;
  const auto before = wait_of(address.key.digest, Clock::now());
  const auto duration = expected
                            ? std::clamp<std::chrono::nanoseconds>(2 * *expected, shortest_lease, longest_lease)
                            : std::chrono::nanoseconds(unknown_time);
  const store::Lease lease{.path = store::entry_path(address.identity.hex(), address.key.digest),
                           .token = fmt::format("{}-{}", token_, taken_++),
                           .duration = std::chrono::duration_cast<std::chrono::milliseconds>(duration)};
  const auto answer = client->take_lease(lease, !take, {Clock::now() + answer_limit});
  const bool is_late = !answer && answer.error().code() == ErrorCode::timed_out;
  Turn turn;
  // A late answer may have given the lease.
  if ((answer && answer->is_taken) || (is_late && take))
    turn.lease = std::make_shared<HeldLease>(client, lease, ending_);
  if (answer && answer->has_object && !ignore_entry) {
    if (before) client->count_lease_wait();
    stop_waiting(address.key.digest);
    return {.kind = Turn::Kind::load};
  }
  // A holder does not stop because one answer is late.
  if ((answer && answer->is_held) || (is_late && before)) return wait_on(*client, question, before);
  if (answer && answer->is_taken) client->count_lease();
  if (is_late) client->count_lease_timeout();
  if (answer && will_upload && !has_place) return {.kind = Turn::Kind::get_place};
  stop_waiting(address.key.digest);
  return turn;
}

FleetLeases::Turn FleetLeases::keep_waiting(StoreClient& client, const Question& question) {
  const auto before = wait_of(question.address.key.digest, Clock::now());
  return before ? wait_on(client, question, before) : Turn();
}

FleetLeases::Turn FleetLeases::wait_on(StoreClient& client, const Question& question,
                                       const std::optional<Wait>& before) {
  const auto now = Clock::now();
  const auto since = before ? before->since : now;
  const auto patience = question.expected ? std::min<std::chrono::nanoseconds>(*question.expected, longest_lease)
                                          : std::chrono::nanoseconds(unknown_time);
  if (now >= since + patience) {
    client.count_lease_timeout();
    stop_waiting(question.address.key.digest);
    return {};
  }
  const base::MutexLock lock(mutex_);
  std::erase_if(waits_, [&](const auto& each) { return now > each.second.ask_again + forgotten_after; });
  if (waits_.size() >= most_waits) return {};
  const auto own = std::clamp<Clock::duration>((now - since) / 4, shortest_pause, longest_pause);
  const auto of_all = std::min<Clock::duration>(waits_.size() * pause_for_each, longest_pause_for_all);
  const auto pause = std::chrono::duration_cast<Clock::duration>((own + of_all) * (1 + jitter_ / 4));
  const auto ask_again = std::min(now + pause, since + std::chrono::duration_cast<Clock::duration>(patience));
  waits_.insert_or_assign(question.address.key.digest, Wait{since, ask_again});
  return {.kind = Turn::Kind::wait, .lease = {}, .ask_again = ask_again};
}

}  // namespace kiln::cache
