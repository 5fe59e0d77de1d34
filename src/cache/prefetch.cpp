#include "cache/prefetch.hpp"

#include <algorithm>
#include <atomic>
#include <set>
#include <span>
#include <utility>

#include "base/event.hpp"
#include "base/mutex.hpp"
#include "cache/flights.hpp"
#include "store/directory.hpp"

namespace kiln::cache {
namespace {

constexpr std::size_t most_streams = 32;
/// Entries of one call.
constexpr std::size_t most_in_a_call = 256;
/// How long programs wait without progress.
constexpr auto most_patience = CircuitBreaker::most_patience;
/// How long wait() waits without progress, beyond the longest timeout of a store.
constexpr auto patience_of_all = std::chrono::seconds(5);

}  // namespace

struct Prefetch::State {
  State(SharedStores::Sources its_sources, std::shared_ptr<store::DiskStore> its_disk, Keys its_keys)
      : sources(std::move(its_sources)), disk(std::move(its_disk)), keys(std::move(its_keys)) {}

  const SharedStores::Sources sources;
  const std::shared_ptr<store::DiskStore> disk;
  const Keys keys;
  const base::Event cancelled;
  std::atomic<std::uint64_t> saved{0};

  base::Mutex mutex;
  base::Condition changed;
  bool started KILN_GUARDED_BY(mutex) = false;
  bool ended KILN_GUARDED_BY(mutex) = false;
  /// Whether `pending` is known.
  bool listed KILN_GUARDED_BY(mutex) = false;
  std::set<Digest> pending KILN_GUARDED_BY(mutex);
  Clock::time_point last_progress KILN_GUARDED_BY(mutex);
  /// Programs that are being saved. None is begun once the prefetch is cancelled.
  std::size_t saving KILN_GUARDED_BY(mutex) = 0;
  /// Null once the prefetch is cancelled.
  CallThreads* threads KILN_GUARDED_BY(mutex) = nullptr;
  std::size_t busy_streams KILN_GUARDED_BY(mutex) = 0;

  /// The keys that are not on disk.
  std::vector<EntryAddress> missing() const {
    std::set<Digest> seen;
    if (const auto items = disk->list())
      for (const auto& item : *items) seen.insert(item.key.digest);
    std::vector<EntryAddress> addresses;
    for (Key& key : keys())
      if (seen.insert(key.digest).second) addresses.push_back({sources.identity, std::move(key)});
    return addresses;
  }

  void settle(const Digest& key) {
    const base::MutexLock lock(mutex);
    pending.erase(key);
    last_progress = Clock::now();
    changed.notify_all();
  }
  std::vector<EntryAddress> still_pending(const std::vector<EntryAddress>& wanted) {
    std::vector<EntryAddress> left;
    const base::MutexLock lock(mutex);
    for (const EntryAddress& address : wanted)
      if (pending.contains(address.key.digest)) left.push_back(address);
    return left;
  }

  /// Saves an entry of a store, if it can be used.
  void take(StoreClient& client, const EntryAddress& address, const std::vector<std::byte>& sealed) {
    const auto opened = without_exceptions([&] { return sources.check(client, address, sealed); });
    if (!opened) return client.refuse(address, opened.error());
    if (!save(address, *opened, sealed)) return;
    ++saved;
    client.count_hit();
    settle(address.key.digest);
  }

  bool save(const EntryAddress& address, const store::OpenedEntry& opened, std::span<const std::byte> sealed) {
    {
      const base::MutexLock lock(mutex);
      if (cancelled.is_set()) return false;
      ++saving;
    }
    // The driver accepts or refuses it when it is loaded.
    const auto put = without_exceptions(
        [&] { return disk->put(address, sealed, store::meta_of(opened.label, opened.entry, sealed.size())); });
    const base::MutexLock lock(mutex);
    --saving;
    changed.notify_all();
    return put.ok();
  }

  void get_part(StoreClient& client, std::span<const EntryAddress> part, bool is_last) {
    // Of a call that goes on, the timeout is for each answer.
    client.get_many(part, {.cancelled = cancelled.descriptor(), .idle = client.settings().timeout},
                    [&](std::size_t i, auto sealed) {
                      if (sealed)
                        take(client, part[i], *sealed);
                      else if (is_last)
                        settle(part[i].key.digest);
                    });
  }

  /// One of several threads that get entries from a store.
  void get_parts(const std::shared_ptr<StoreClient>& client, const std::vector<EntryAddress>& wanted,
                 std::atomic<std::size_t>& next, std::size_t size, bool is_last) {
    while (!cancelled.is_set() && client->is_asked()) {
      const std::size_t begin = next.fetch_add(size);
      if (begin >= wanted.size()) return;
      get_part(*client, std::span(wanted).subspan(begin, std::min(size, wanted.size() - begin)), is_last);
    }
  }

  static void get_from(const std::shared_ptr<State>& state, const std::shared_ptr<StoreClient>& client,
                       std::vector<EntryAddress> addresses, bool is_last) {
    const std::size_t streams = std::clamp<std::size_t>(client->useful_streams(), 1, most_streams);
    // Equal parts, so that no stream makes more round trips than others.
    const std::size_t part = std::min(most_in_a_call, (addresses.size() + streams - 1) / streams);
    // What may hang is asked for one after the other, so that it can be cancelled between them.
    const std::size_t size = client->settings().keeps_limits ? part : 1;
    const auto wanted = std::make_shared<const std::vector<EntryAddress>>(std::move(addresses));
    const auto next = std::make_shared<std::atomic<std::size_t>>(0);
    const auto work = [state, client, wanted, next, size, is_last] {
      struct End {
        State& state;
        ~End() {
          const base::MutexLock lock(state.mutex);
          --state.busy_streams;
          state.changed.notify_all();
        }
      } const end{*state};
      state->get_parts(client, *wanted, *next, size, is_last);
    };
    const auto at_end =
        client->settings().keeps_limits ? CallThreads::AtEnd::wait : CallThreads::AtEnd::leave_behind;
    {
      const base::MutexLock lock(state->mutex);
      for (std::size_t i = 1; i < std::min(streams, wanted->size()); ++i)
        if (state->threads != nullptr && state->threads->run(work, at_end)) ++state->busy_streams;
    }
    state->get_parts(client, *wanted, *next, size, is_last);
    const base::MutexLock lock(state->mutex);
    // A stream that has not begun is dropped at the end.
    while (state->busy_streams > 0 && !state->cancelled.is_set()) state->changed.wait(state->mutex);
  }

  static void run(const std::shared_ptr<State>& state) {
    struct End {
      State& state;
      ~End() {
        const base::MutexLock lock(state.mutex);
        state.ended = true;
        state.changed.notify_all();
      }
    } const end{*state};
    const auto wanted = state->missing();
    {
      const base::MutexLock lock(state->mutex);
      for (const EntryAddress& address : wanted) state->pending.insert(address.key.digest);
      state->listed = true;
      state->last_progress = Clock::now();
      state->changed.notify_all();
    }
    for (const auto& client : state->sources.clients) {
      auto left = state->still_pending(wanted);
      if (left.empty() || state->cancelled.is_set()) return;
      if (client->is_asked()) get_from(state, client, std::move(left), client == state->sources.clients.back());
    }
  }
};

Prefetch::Prefetch(const SharedStores& stores, std::shared_ptr<store::DiskStore> disk, Keys keys)
    : state_(std::make_shared<State>(stores.sources(), std::move(disk), std::move(keys))),
      threads_("kiln-prefetch", most_streams) {
  const base::MutexLock lock(state_->mutex);
  state_->threads = &threads_;
}

Prefetch::~Prefetch() {
  const base::MutexLock lock(state_->mutex);
  state_->cancelled.set();
  state_->threads = nullptr;
  state_->changed.notify_all();
  // Nothing is written to the disk afterwards.
  while (state_->saving > 0) state_->changed.wait(state_->mutex);
}

void Prefetch::start() {
  const base::MutexLock lock(state_->mutex);
  if (std::exchange(state_->started, true)) return;
  state_->last_progress = Clock::now();
  const bool keeps_limits = std::ranges::all_of(state_->sources.clients,
                                                [](const auto& client) { return client->settings().keeps_limits; });
  const bool runs = threads_.run([state = state_] { State::run(state); },
                                 keeps_limits ? CallThreads::AtEnd::wait : CallThreads::AtEnd::leave_behind);
  state_->ended = !runs;
}

bool Prefetch::wait_for(const Digest& key, Clock::time_point when) {
  start();
  const base::MutexLock lock(state_->mutex);
  bool waited = false;
  for (;;) {
    const bool is_open = !state_->ended && (!state_->listed || state_->pending.contains(key));
    const auto until = std::min(when, state_->last_progress + most_patience);
    if (!is_open || Clock::now() >= until) return waited;
    waited = true;
    state_->changed.wait_until(state_->mutex, until);
  }
}

void Prefetch::wait() {
  start();
  Clock::duration patience = patience_of_all;
  for (const auto& client : state_->sources.clients)
    patience = std::max<Clock::duration>(patience, patience_of_all + client->settings().timeout);
  const base::MutexLock lock(state_->mutex);
  while (!state_->ended && Clock::now() < state_->last_progress + patience)
    state_->changed.wait_until(state_->mutex, state_->last_progress + patience);
}

std::uint64_t Prefetch::saved() const noexcept { return state_->saved; }

}  // namespace kiln::cache
