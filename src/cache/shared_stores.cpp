#include "cache/shared_stores.hpp"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/event.hpp"
#include "base/try.hpp"
#include "cache/guarded_store.hpp"
#include "store/directory.hpp"
#include "store/file_store.hpp"
#include "store/remote_library.hpp"
#include "store/settings.hpp"

namespace kiln::cache {
namespace {

using Clock = std::chrono::steady_clock;

/// How long a search may take if nothing is known about the program.
constexpr auto unknown_limit = std::chrono::seconds(2);
/// Programs that compile faster than this are looked for so long in the background.
constexpr auto least_limit = std::chrono::milliseconds(100);
constexpr std::size_t most_threads = 64;
/// Of entries (docs/format.md): a part of the paths of objects.
constexpr int format_version = 3;

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
    return objects_->get(path_of(address), limit);
  }
  Result<void> put(const EntryAddress& address, std::span<const std::byte> sealed,
                   const store::CallLimit& limit) override {
    KILN_TRY(put_identity(address, limit));
    return objects_->put(path_of(address), sealed, limit);
  }

 private:
  static std::string folder_of(const EntryAddress& address) {
    return fmt::format("{}/{}", format_version, address.identity.hex());
  }
  static std::string path_of(const EntryAddress& address) {
    const std::string key = address.key.digest.hex();
    return fmt::format("{}/{}/{}", folder_of(address), key.substr(0, 2), key);
  }
  /// Tools read from it what the digest of an identity stands for.
  Result<void> put_identity(const EntryAddress& address, const store::CallLimit& limit) {
    if (has_identity_) return {};
    const std::string path = folder_of(address) + "/identity.json";
    if (!KILN_TRY(objects_->has(path, limit)))
      KILN_TRY(objects_->put(path, std::as_bytes(std::span(identity_)), limit));
    has_identity_ = true;
    return {};
  }

  const std::unique_ptr<store::ObjectStore> objects_;
  const std::string identity_;
  std::atomic<bool> has_identity_{false};
};

Error damaged(std::string why) { return Error(ErrorCode::damaged, std::move(why)); }

/// Problems of the settings are logged once by a process, however many caches it has.
bool is_first_report(const std::string& problem) {
  static std::mutex mutex;
  static std::set<std::string> reported;
  const std::lock_guard lock(mutex);
  return reported.size() < 64 && reported.insert(problem).second;
}

}  // namespace

/// Trusted and own keys, which are read when they are first needed.
class SharedStores::Keys {
 public:
  Keys(std::string choice, std::shared_ptr<ClosableLog> log) : choice_(std::move(choice)), log_(std::move(log)) {}

  const store::TrustList& trusted() {
    std::call_once(read_trusted_, [this] {
      if (auto read = store::TrustList::read(store::config_folders()))
        trusted_ = std::move(*read);
      else
        log_->write(LogLevel::warning, fmt::format("no key is trusted: {}", read.error().message()));
    });
    return trusted_;
  }
  /// Those that sign.
  const std::vector<store::SigningKey>& own() {
    std::call_once(read_own_, [this] {
      if (auto read = store::signing_keys(choice_, store::config_folders()))
        own_ = std::move(*read);
      else
        log_->write(LogLevel::warning, fmt::format("entries are not signed: {}", read.error().message()));
    });
    return own_;
  }

 private:
  const std::string choice_;
  const std::shared_ptr<ClosableLog> log_;
  std::once_flag read_trusted_, read_own_;
  store::TrustList trusted_;
  std::vector<store::SigningKey> own_;
};

struct Fetch::State {
  /// Those to ask, with their places.
  using Clients = std::vector<std::pair<std::size_t, std::shared_ptr<StoreClient>>>;

  State(EntryAddress wanted, Clock::time_point until, Clients to_ask)
      : address(std::move(wanted)), deadline(until), clients(std::move(to_ask)), readings(clients.size()) {}

  const EntryAddress address;
  const Clock::time_point start = Clock::now();
  const Clock::time_point deadline;
  const Clients clients;
  std::vector<StoreClient::Reading> readings;
  /// The place in `clients` of the one being asked.
  std::atomic<std::size_t> current{0};
  const base::Event cancelled;
  std::atomic<bool> is_cancelled{false};

  mutable base::Mutex mutex;
  base::Condition changed;
  bool ended KILN_GUARDED_BY(mutex) = false;
  std::optional<Fetched> found KILN_GUARDED_BY(mutex);
  std::function<void()> then KILN_GUARDED_BY(mutex);

  template <class Check>
  void search(const Check& check) {
    std::optional<Fetched> result;
    for (std::size_t i = 0; i < clients.size() && !result && !is_cancelled; ++i) {
      const auto& [place, client] = clients[i];
      current = i;
      const auto limit = std::min(deadline, Clock::now() + client->settings().timeout);
      if (Clock::now() >= deadline) break;
      auto sealed = client->get(address, {limit, cancelled.descriptor()}, readings[i]);
      if (!sealed || !*sealed) continue;
      Result<store::Entry> entry = check(*client, **sealed);
      if (entry)
        result = Fetched{std::move(*entry), std::move(**sealed), place};
      else
        client->refuse(address, entry.error());
    }
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
  state_->is_cancelled = true;
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
  state_->clients[i].second->unanswered(state_->readings[i], Clock::now() - state_->start);
  return state_->clients[i].second->is_skipped();
}

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

void Fetch::count_race(bool store_won) { state_->clients[state_->current].second->count_race(store_won); }

SharedStores::SharedStores(const CacheOptions& options, const Identity& identity, const void* owner)
    : identity_(identity.digest()),
      manifest_(store::manifest_of(identity).dump(2) + "\n"),
      settings_(settings_of(options)),
      queue_(std::max<std::size_t>(options.write_queue, 1)),
      log_(std::make_shared<ClosableLog>(options.log)),
      keys_(std::make_shared<Keys>(settings_.signing_key, log_)),
      threads_("kiln-fetch", most_threads) {
  for (const SharedStore& store : settings_.stores) add(store, owner);
}

SharedStores::~SharedStores() {
  log_->close();
  ending_->set();
}

SharedStores::Chosen SharedStores::settings_of(const CacheOptions& options) {
  const store::Settings settings = store::read_settings();
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

void SharedStores::add(const SharedStore& store, const void* owner) {
  StoreClient::Settings settings{
      .name = store.name, .mode = store.mode, .timeout = store.timeout, .verify = store.verify, .open = {}};
  if (store.object != nullptr) {
    settings.open = [object = GuardedStore(store.object, owner)]() -> Result<std::unique_ptr<EntryPlace>> {
      return std::unique_ptr<EntryPlace>(std::make_unique<ApplicationPlace>(object));
    };
  } else {
    const auto url = store::parse_store_url(store.url);
    if (!url) return log_->write(LogLevel::warning, url.error().message());
    settings.name = url->display();
    settings.mode = url->mode;
    settings.timeout = url->timeout;
    settings.keeps_limits = url->is_network();
    settings.verify = url->verify;
    settings.open = [url = *url, manifest = manifest_]() -> Result<std::unique_ptr<EntryPlace>> {
      // Others must not be able to create a trusted folder first.
      std::error_code ignored;
      if (!url.is_network() && url.mode != StoreMode::read_only)
        std::filesystem::create_directories(url.path, ignored);
      auto objects = KILN_TRY(url.is_network() ? store::open_remote_store(url) : store::make_file_store(url.path));
      return std::unique_ptr<EntryPlace>(std::make_unique<ObjectPlace>(std::move(objects), manifest));
    };
    if (!url->verify)
      settings.is_trusted = [url = *url] { return !url.is_network() && store::is_trusted_folder(url.path); };
  }
  auto client = std::make_shared<StoreClient>(std::move(settings), log_);
  clients_.push_back(client);
  const auto may = [client, keys = keys_](const std::vector<std::byte>& sealed) {
    if (client->verification() == Verification::off) return true;
    const auto examined = store::examine_entry(sealed);
    if (examined && !examined->signatures.empty()) return true;
    client->refuse_unsigned_upload(keys->trusted().keys().empty() ? LogLevel::warning : LogLevel::debug);
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
  const auto check = [keys = keys_, identity = identity_, wanted = key.digest](
                         StoreClient& client, const std::vector<std::byte>& sealed) -> Result<store::Entry> {
    const auto examined = KILN_TRY(store::examine_entry(sealed));
    if (examined.label.key != wanted) return damaged("it holds another program");
    if (examined.label.identity != identity) return damaged("it was made for another device, driver or compiler");
    if (client.verification() == Verification::required) KILN_TRY(keys->trusted().verify(examined));
    auto opened = KILN_TRY(store::unpack_entry(examined));
    if (opened.entry.binary() == nullptr) return damaged("it has no binary");
    return std::move(opened.entry);
  };
  const bool started = threads_.run([state, check] { state->search(check); },
                                    may_hang ? CallThreads::AtEnd::leave_behind : CallThreads::AtEnd::wait);
  if (!started) return nullptr;
  return std::unique_ptr<Fetch>(new Fetch(std::move(state)));
}

void SharedStores::probe(const std::shared_ptr<StoreClient>& client, const Key& key) {
  const EntryAddress address{identity_, key};
  const bool started = threads_.run(
      [client, address, ending = ending_] {
        StoreClient::Reading reading;
        const auto limit = Clock::now() + client->settings().timeout;
        static_cast<void>(client->get(address, {limit, ending->descriptor()}, reading));
      },
      client->settings().keeps_limits ? CallThreads::AtEnd::wait : CallThreads::AtEnd::leave_behind);
  if (!started) client->skip_probe();
}

void SharedStores::upload(const Key& key, const Sealed& sealed, std::size_t before) {
  for (std::size_t i = 0; i < std::min(before, uploaders_.size()); ++i)
    uploaders_[i]->upload({identity_, key}, sealed);
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
