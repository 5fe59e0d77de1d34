#include "shared_answer.hpp"

#include <chrono>
#include <filesystem>
#include <mutex>

#include "cache/shared_stores.hpp"
#include "store/directory.hpp"
#include "store/file_store.hpp"
#include "store/json_file.hpp"
#include "store/settings.hpp"
#include "store/store_url.hpp"

namespace kiln::cli {
namespace {

constexpr auto patience = std::chrono::seconds(10);

std::string outcome_of(const StoreStats& stats) {
  if (stats.refusals > 0) return "refused";
  if (stats.errors > 0 || !stats.usable) return "failed";
  return stats.misses > 0 ? "miss" : "not asked";
}

/// The differences from the most similar device for which a folder has the program.
std::vector<Difference> other_device(const store::StoreUrl& url, const Request& request, const Identity& identity) {
  std::vector<Difference> best;
  const auto objects = store::make_file_store(url.path);
  if (!objects) return best;
  const auto folders = (*objects)->list(store::entries_folder, {});
  if (!folders) return best;
  for (const std::string& folder : *folders) {
    if (folder == identity.digest().hex()) continue;
    const auto has = (*objects)->has(store::entry_path(folder, request.key().digest), {});
    if (!has || !*has) continue;
    const auto bytes = (*objects)->get(store::identity_path(folder), {});
    if (!bytes || !*bytes) continue;
    const auto json =
        store::parse_json(std::string_view(reinterpret_cast<const char*>((*bytes)->data()), (*bytes)->size()));
    const auto stored = json ? store::identity_in(*json) : std::nullopt;
    if (!stored) continue;
    auto differences = identity_differences(*stored, identity);
    if (best.empty() || differences.size() < best.size()) best = std::move(differences);
  }
  return best;
}

}  // namespace

SharedAnswer ask_shared_stores(const Context& context, const Request& request, const Identity& identity) {
  SharedAnswer answer;
  CacheOptions options;
  options.stores = context.stores();
  if (!options.stores) {
    options.stores.emplace();
    for (const auto& url : store::read_settings().stores.value) options.stores->emplace_back(url.value);
  }
  // The cache would create it, which a question should not do.
  const auto is_missing = [](const SharedStore& store) {
    const auto url = store::parse_store_url(store.url);
    std::error_code error;
    return url && !url->is_network() && !std::filesystem::exists(url->path, error) && !error;
  };
  for (auto store = options.stores->begin(); store != options.stores->end();) {
    if (is_missing(*store)) {
      answer.stores.push_back({store::parse_store_url(store->url)->display(), "miss"});
      store = options.stores->erase(store);
    } else {
      ++store;
    }
  }
  if (options.stores->empty()) return answer;
  // The log may be written by other threads.
  std::mutex mutex;
  options.log = Log(LogLevel::warning, [&](const LogRecord& record) {
    const std::lock_guard lock(mutex);
    answer.problems.push_back(record.message);
  });
  cache::SharedStores stores(options, store::read_settings(), identity, nullptr);
  std::optional<cache::Fetched> found;
  if (const auto fetch = stores.fetch(request.key(), patience)) {
    static_cast<void>(fetch->wait_until(std::chrono::steady_clock::now() + patience));
    found = fetch->take();
  }
  const auto stats = stores.stats();
  for (std::size_t i = 0; i < stats.size(); ++i) {
    SharedAnswer::Store store{stats[i].name, found && found->place == i ? "hit" : outcome_of(stats[i])};
    const auto url = store::parse_store_url((*options.stores)[i].url);
    if (store.outcome == "miss" && url && !url->is_network())
      store.identity = other_device(*url, request, identity);
    answer.stores.push_back(std::move(store));
  }
  if (found) answer.store = stats[found->place].name;
  return answer;
}

}  // namespace kiln::cli
