#include "cache/shared_stores.hpp"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/event.hpp"
#include "base/process.hpp"
#include "base/try.hpp"
#include "cache/flights.hpp"
#include "cache/guarded_store.hpp"
#include "store/settings.hpp"
#include "store/shared_store.hpp"

namespace kiln::cache {
namespace {

using Clock = std::chrono::steady_clock;

/// How long a search may take if nothing is known about the program.
constexpr auto unknown_limit = std::chrono::seconds(2);
/// The shortest limit of a search, for programs that compile faster.
constexpr auto least_limit = std::chrono::milliseconds(100);
constexpr std::size_t most_threads = 64;
/// How long trusted keys are used before their files are read again.
constexpr auto keys_limit = std::chrono::seconds(10);
/// The longest timeout that a store may have.
constexpr std::chrono::milliseconds longest_timeout = std::chrono::hours(1);

/// A store of the application.
class ApplicationPlace final : public EntryPlace {
 public:
  explicit ApplicationPlace(GuardedStore store) : store_(std::move(store)) {}
  Result<std::optional<std::vector<std::byte>>> get(const EntryAddress& address, const store::CallLimit&) override {
    return store_.get(address);
  }
  Result<void> put(const EntryAddress& address, std::span<const std::byte> sealed,
                   const store::CallLimit&) override {
    return store_.put(address, sealed);
  }

 private:
  const GuardedStore store_;
};

/// A folder or a server: docs/sharing.md describes the layout of its objects.
class ObjectPlace final : public EntryPlace {
 public:
  ObjectPlace(std::unique_ptr<store::ObjectStore> objects, std::string identity)
      : objects_(std::move(objects)), identity_(std::move(identity)) {}

  Result<std::optional<std::vector<std::byte>>> get(const EntryAddress& address,
                                                    const store::CallLimit& limit) override {
    return objects_->get(store::entry_path(address.identity.hex(), address.key.digest), limit);
  }
  store::ObjectStore* objects() noexcept override { return objects_.get(); }
  Result<void> put(const EntryAddress& address, std::span<const std::byte> sealed,
                   const store::CallLimit& limit) override {
    const std::string identity = address.identity.hex();
    if (!has_identity_) KILN_TRY(store::put_identity(*objects_, identity, identity_, limit));
    has_identity_ = true;
    return objects_->put(store::entry_path(identity, address.key.digest), sealed, limit);
  }

 private:
  const std::unique_ptr<store::ObjectStore> objects_;
  const std::string identity_;
  std::atomic<bool> has_identity_{false};
};

/// Problems of the settings are logged once by a process, however many caches it has.
bool is_first_report(const std::string& problem) {
  struct Reported {
    base::ForkMutex mutex{base::ForkMutex::Order::inner};
    std::set<std::string> problems KILN_GUARDED_BY(mutex);
  };
  auto& reported = base::once_per_process<Reported>([] { return std::make_unique<Reported>(); });
  const base::MutexLock lock(reported.mutex);
  return reported.problems.size() < 64 && reported.problems.insert(problem).second;
}

}  // namespace

/// Reads the files of keys when they are first needed. Trusted keys are read again after a while, so
/// that a revocation has an effect on running programs.
class SharedStores::Keys {
 public:
  Keys(std::string choice, std::shared_ptr<ClosableLog> log) : choice_(std::move(choice)), log_(std::move(log)) {}

  std::shared_ptr<const store::TrustList> trusted() KILN_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    const auto now = Clock::now();
    if (trusted_ != nullptr && now < read_again_) return trusted_;
    auto read = store::TrustList::read(store::config_folders());
    if (!read) warn(fmt::format("no key is trusted: {}", read.error().message()));
    trusted_ = std::make_shared<const store::TrustList>(read ? std::move(*read) : store::TrustList());
    read_again_ = now + keys_limit;
    return trusted_;
  }
  /// Those that sign.
  const std::vector<store::SigningKey>& own() KILN_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    if (!own_) {
      auto read = store::signing_keys(choice_, store::config_folders());
      if (!read) warn(fmt::format("entries are not signed: {}", read.error().message()));
      own_ = read ? std::move(*read) : std::vector<store::SigningKey>();
    }
    return *own_;
  }

 private:
  void warn(std::string problem) KILN_REQUIRES(mutex_) {
    if (problem != last_problem_) log_->write(LogLevel::warning, problem);
    last_problem_ = std::move(problem);
  }

  const std::string choice_;
  const std::shared_ptr<ClosableLog> log_;
  base::Mutex mutex_;
  std::shared_ptr<const store::TrustList> trusted_ KILN_GUARDED_BY(mutex_);
  Clock::time_point read_again_ KILN_GUARDED_BY(mutex_);
  std::optional<std::vector<store::SigningKey>> own_ KILN_GUARDED_BY(mutex_);
  std::string last_problem_ KILN_GUARDED_BY(mutex_);
};

struct Fetch::State {
  /// Those to ask, with their places.
  using Clients = std::vector<std::pair<std::size_t, std::shared_ptr<StoreClient>>>;

  State(EntryAddress wanted, Clock::time_point until, Clients to_ask)
      : address(std::move(wanted)), deadline(until), clients(std::move(to_ask)), readings(clients.size()) {}

  const EntryAddress address;
  const Clock::time_point deadline;
  const Clients clients;
  std::vector<StoreClient::Reading> readings;
  /// The place in `clients` of the one being asked.
  std::atomic<std::size_t> current{0};
  const base::Event cancelled;

  mutable base::Mutex mutex;
  base::Condition changed;
  bool ended KILN_GUARDED_BY(mutex) = false;
  std::optional<Fetched> found KILN_GUARDED_BY(mutex);
  std::function<void()> then KILN_GUARDED_BY(mutex);

  template <class Check>
  void search(const Check& check) {
    std::optional<Fetched> result;
    // Also if there is no memory left.
    struct End {
      State& state;
      std::optional<Fetched>& result;
      ~End() { state.end(std::move(result)); }
    } const end_of_search{*this, result};
    for (std::size_t i = 0; i < clients.size() && !result && !cancelled.is_set(); ++i) {
      const std::size_t place = clients[i].first;
      const std::shared_ptr<StoreClient>& client = clients[i].second;
      // It has stopped answering since the search began.
      if (!client->is_read()) continue;
      current = i;
      const auto limit = std::min(deadline, Clock::now() + client->settings().timeout);
      if (Clock::now() >= deadline) break;
      auto sealed = client->get(address, {limit, cancelled.descriptor()}, readings[i]);
      if (!sealed || !*sealed) continue;
      auto opened = without_exceptions([&] { return check(*client, **sealed); });
      if (opened)
        result = Fetched{std::move(opened->entry), std::move(**sealed), place};
      else
        client->refuse(address, opened.error());
    }
  }

  void end(std::optional<Fetched> result) {
    std::function<void()> notify;
    {
      const base::MutexLock lock(mutex);
      ended = true;
      found = std::move(result);
      notify = std::exchange(then, nullptr);
      changed.notify_all();
    }
    if (notify) notify();
  }
};

Fetch::~Fetch() {
  state_->cancelled.set();
  const base::MutexLock lock(state_->mutex);
  state_->then = nullptr;
}

bool Fetch::wait_until(Clock::time_point when) {
  const base::MutexLock lock(state_->mutex);
  while (!state_->ended && Clock::now() < when) state_->changed.wait_until(state_->mutex, when);
  return state_->ended;
}

bool Fetch::has_ended() const {
  const base::MutexLock lock(state_->mutex);
  return state_->ended;
}

bool Fetch::unanswered() {
  const std::size_t i = state_->current;
  state_->clients[i].second->unanswered(state_->readings[i]);
  return !state_->clients[i].second->is_read();
}

void Fetch::stopped_waiting() {
  const std::size_t i = state_->current;
  state_->clients[i].second->stopped_waiting(state_->readings[i]);
}

Fetch::Clock::time_point Fetch::deadline() const noexcept { return state_->deadline; }

std::optional<Fetched> Fetch::take() {
  const base::MutexLock lock(state_->mutex);
  return std::exchange(state_->found, std::nullopt);
}

void Fetch::when_ended(std::function<void()> then) {
  {
    const base::MutexLock lock(state_->mutex);
    if (!state_->ended) {
      state_->then = std::move(then);
      return;
    }
  }
  then();
}

void Fetch::count_race(bool store_won) {
  // A store that has answered without the program loses nothing.
  if (store_won || !has_ended()) state_->clients[state_->current].second->count_race(store_won);
}

SharedStores::SharedStores(const CacheOptions& options, const store::Settings& settings, const Identity& identity,
                           const void* owner)
    : identity_(identity.digest()),
      settings_(settings_of(options, settings)),
      queue_(std::max<std::size_t>(options.write_queue, 1)),
      log_(std::make_shared<ClosableLog>(options.log)),
      keys_(std::make_shared<Keys>(settings_.signing_key, log_)),
      threads_("kiln-fetch", most_threads) {
  if (settings_.stores.empty()) return;
  const std::string manifest = store::identity_text(identity);
  for (const SharedStore& store : settings_.stores) add(store, manifest, owner);
}

SharedStores::~SharedStores() {
  log_->close();
  ending_->set();
}

SharedStores::Chosen SharedStores::settings_of(const CacheOptions& options, const store::Settings& settings) {
  Chosen chosen{.stores = options.stores.value_or(std::vector<SharedStore>{}),
                .signing_key = settings.signing_key.value.string(),
                .share_facts = options.share_facts.value_or(settings.share_facts.value),
                .upload_limit = options.upload_limit.value_or(settings.upload_limit.value)};
  if (!options.stores)
    for (const auto& url : settings.stores.value) chosen.stores.emplace_back(url.value);
  for (const std::string& problem : settings.problems)
    if (is_first_report(problem)) options.log.warning(problem);
  return chosen;
}

void SharedStores::add(const SharedStore& store, const std::string& manifest, const void* owner) {
  using Opened = StoreClient::Opened;
  StoreClient::Settings settings{
      .name = store.name,
      .mode = store.mode,
      .timeout = std::clamp(store.timeout, std::chrono::milliseconds(1), longest_timeout),
      .verify = store.verify,
      .open = {}};
  if (store.object != nullptr) {
    settings.open = [object = GuardedStore(store.object, owner), verify = store.verify]() -> Result<Opened> {
      return Opened{std::make_unique<ApplicationPlace>(object), verify};
    };
  } else {
    auto url = store::parse_store_url(store.url);
    if (!url) return log_->write(LogLevel::warning, url.error().message());
    settings.name = url->display();
    settings.mode = url->mode;
    settings.timeout = url->timeout;
    settings.keeps_limits = url->is_network();
    settings.verify = url->verify.value_or(Verification::required);
    settings.open = [url = std::move(*url), manifest]() -> Result<Opened> {
      auto opened = KILN_TRY(store::open_shared_store(url));
      return Opened{std::make_unique<ObjectPlace>(std::move(opened.objects), manifest), opened.verify};
    };
  }
  auto client = std::make_shared<StoreClient>(std::move(settings), log_);
  clients_.push_back(client);
  const auto may = [client, keys = keys_](const std::vector<std::byte>& sealed) {
    if (client->verification() == Verification::off) return true;
    const auto examined = store::examine_entry(sealed);
    if (examined && !examined->signatures.empty()) return true;
    // What comes from another store may have no signature although this user has a key.
    if (keys->own().empty())
      client->refuse_unsigned_upload(keys->trusted()->keys().empty() ? LogLevel::warning : LogLevel::debug);
    return false;
  };
  uploaders_.push_back(std::make_unique<Uploader>(std::move(client), queue_, may));
}

std::unique_ptr<Fetch> SharedStores::fetch(const Key& key, std::optional<std::chrono::nanoseconds> expected) {
  using Turn = CircuitBreaker::Turn;
  const auto now = Clock::now();
  Fetch::State::Clients to_ask;
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    const Turn turn = clients_[i]->ask_to_read(key.digest, now);
    if (turn == Turn::call) to_ask.emplace_back(i, clients_[i]);
    if (turn == Turn::probe) probe(clients_[i], key);
  }
  if (to_ask.empty()) return nullptr;
  const bool may_hang =
      std::ranges::any_of(to_ask, [](const auto& each) { return !each.second->settings().keeps_limits; });
  const auto limit = expected ? std::max<std::chrono::nanoseconds>(*expected, least_limit) : unknown_limit;
  const auto bounded = std::min<std::chrono::nanoseconds>(limit, std::chrono::hours(1));
  auto state = std::make_shared<Fetch::State>(EntryAddress{identity_, key}, now + bounded, std::move(to_ask));
  const auto check = [sources = sources(), address = state->address](StoreClient& client,
                                                                     const std::vector<std::byte>& sealed) {
    return sources.check(client, address, sealed);
  };
  const bool started = threads_.run([state, check] { state->search(check); },
                                    may_hang ? CallThreads::AtEnd::leave_behind : CallThreads::AtEnd::wait);
  if (!started) return nullptr;
  return std::unique_ptr<Fetch>(new Fetch(std::move(state)));
}

Result<store::OpenedEntry> SharedStores::Sources::check(StoreClient& client, const EntryAddress& wanted,
                                                        std::span<const std::byte> sealed) const {
  const auto trusted = client.verification() == Verification::required ? keys->trusted() : nullptr;
  return store::check_shared_entry(sealed, wanted.key.digest, wanted.identity, trusted.get());
}

FleetLeases::Turn SharedStores::ask_fleet(const Key& key, FleetLeases::Expected expected, bool has_place,
                                          bool ignore_entry) {
  FleetLeases::Question question{{identity_, key}, expected, false, has_place, ignore_entry};
  for (const auto& client : clients_) {
    // Folders have no leases, and may not answer.
    if (!client->settings().keeps_limits) continue;
    client->wait_until_open(Clock::now() + FleetLeases::answer_limit);
    // Asking takes as long as compiling.
    if (!client->has_leases() || (expected && *expected < client->latency())) continue;
    if (!client->is_asked()) {
      if (client->ask_to_read(key.digest, Clock::now()) == CircuitBreaker::Turn::probe) probe(client, key);
      return leases_.keep_waiting(*client, question);
    }
    if (!client->gives_leases()) continue;
    question.will_upload =
        client->takes_uploads() && (client->verification() == Verification::off || !keys_->own().empty());
    return leases_.ask(client, question);
  }
  return {};
}

bool SharedStores::has_refused(const Digest& key) const {
  return std::ranges::any_of(clients_, [&](const auto& client) { return client->has_refused(key); });
}

void SharedStores::forget_lacking(const Digest& key) {
  for (const auto& client : clients_) client->forget_lacking(key);
}

void SharedStores::probe(const std::shared_ptr<StoreClient>& client, const Key& key) {
  const EntryAddress address{identity_, key};
  const bool started = threads_.run(
      [client, address, ending = ending_] {
        StoreClient::Reading reading;
        reading.is_probe = true;
        const auto limit = Clock::now() + client->settings().timeout;
        static_cast<void>(client->get(address, {limit, ending->descriptor()}, reading));
      },
      client->settings().keeps_limits ? CallThreads::AtEnd::wait : CallThreads::AtEnd::leave_behind);
  if (!started) client->drop_probe();
}

void SharedStores::upload(const Key& key, const Sealed& sealed, std::size_t before,
                          std::shared_ptr<HeldLease> lease) {
  for (std::size_t i = 0; i < std::min(before, uploaders_.size()); ++i)
    uploaders_[i]->upload({identity_, key}, sealed,
                          lease && lease->client() == clients_[i].get() ? std::move(lease) : nullptr);
}

bool SharedStores::takes_uploads() const {
  return std::ranges::any_of(clients_, [](const auto& client) { return client->takes_uploads(); });
}

std::vector<std::byte> SharedStores::sign(std::vector<std::byte> sealed) {
  if (is_empty() || keys_->own().empty()) return sealed;
  auto signed_entry = store::sign_entry(sealed, keys_->own());
  return signed_entry ? std::move(*signed_entry) : std::move(sealed);
}

bool SharedStores::wait_for_uploads() {
  // Bounded, so that the addition cannot overflow.
  const auto deadline =
      Clock::now() + std::min<std::chrono::milliseconds>(settings_.upload_limit, std::chrono::hours(24 * 365));
  bool all = true;
  for (const auto& uploader : uploaders_) all = uploader->wait_until(deadline) && all;
  return all;
}

void SharedStores::refuse(std::size_t place, const Key& key, const Error& why) {
  clients_[place]->refuse({identity_, key}, why);
}

void SharedStores::count_hit(std::size_t place) { clients_[place]->count_hit(); }

std::vector<StoreStats> SharedStores::stats() const {
  std::vector<StoreStats> stats;
  for (const auto& client : clients_) stats.push_back(client->stats());
  return stats;
}

std::uint64_t SharedStores::failures() const {
  std::uint64_t sum = 0;
  for (const auto& client : clients_) sum += client->failures();
  return sum;
}

}  // namespace kiln::cache
