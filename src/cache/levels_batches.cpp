// The functions of Levels for many programs: preload and warm.
#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/file.hpp"
#include "base/try.hpp"
#include "cache/levels.hpp"
#include "key/request_record.hpp"
#include "store/compile_times.hpp"
#include "store/json_file.hpp"

namespace kiln::cache {
namespace {

/// The programs of a record that devices of this API use.
Result<std::vector<Key>> keys_of(const std::filesystem::path& record, const std::string& api) {
  const auto read = KILN_TRY(key::RequestRecord::read(record));
  std::vector<Key> keys;
  for (const auto& entry : read.entries())
    if (entry.api == api) keys.push_back(entry.key);
  return keys;
}

}  // namespace

std::size_t Levels::batch_threads() const {
  if (!backend_->usable_from_any_thread()) return 1;
  const unsigned useful = options_.threads == 0 ? backend_->useful_threads() : 0;
  return useful != 0 ? std::min<std::size_t>(useful, workers_.size()) : workers_.size();
}

PreloadReport Levels::preload(std::span<const Request> requests, const ProgressCallback& progress) {
  return preload(requests, progress, true);
}

PreloadReport Levels::preload(std::span<const Request> requests, const ProgressCallback& progress,
                              bool is_recorded) {
  if (auto refusal = refusal_of_call()) return {0, {std::move(*refusal)}};
  const UnderWay::Call call(under_way_);
  const Batch::Name name = [&](std::size_t i) -> const std::string& { return requests[i].name(); };
  Batch batch(requests.size(), name, progress, workers_, batch_threads());
  std::vector<std::size_t> places(requests.size());
  std::iota(places.begin(), places.end(), std::size_t{0});

  using Tried = Batch::Tried;
  using End = Batch::End;
  places = batch.run(places, Batch::Start::gradually, [&](std::size_t i, auto) {
    if (table_.find(requests[i].key().digest) || find_ready(requests[i], is_recorded)) return Tried{End::done};
    return Tried{End::not_done};
  });
  if (places.empty()) return batch.finish();
  const auto is_compiled = [&](std::size_t i) { return permits(CompilePolicy::never, requests[i]); };
  if (!shared_.is_empty() || !std::ranges::all_of(places, is_compiled)) {
    places = batch.run(places, Batch::Start::all_at_once, [&](std::size_t i, auto) {
      auto found = find_or_compile(
          requests[i],
          {.if_missing = IfMissing::come_back, .ask_stores = AskStores::patiently, .is_recorded = is_recorded});
      if (!found) return Tried{End::failed, std::move(found).error()};
      if (!*found && !is_compiled(i)) return Tried{End::failed, failure(not_compiled(requests[i]))};
      return Tried{*found ? End::done : End::not_done};
    });
    if (places.empty()) return batch.finish();
  }
  batch.expect(sort_by_cost(requests, places));
  const auto get_if = [&](IfLocked if_locked) {
    return [&, if_locked](std::size_t i, std::unique_ptr<CompilePlace> place) {
      auto found = find_or_compile(requests[i], {.if_locked = if_locked,
                                                 .ask_stores = AskStores::no,
                                                 .urgency = Urgency::background,
                                                 .place = &place,
                                                 .is_recorded = is_recorded});
      if (!found) return Tried{End::failed, std::move(found).error()};
      return Tried{*found ? End::done : End::not_done};
    };
  };
  // A request for a program that another thread has begun joins it, so none begins before it has a place.
  places = batch.run(places, Batch::Start::all_at_once, get_if(IfLocked::return_nothing),
                     [&] { return backend_->wait_for_place(Urgency::background); });
  // Other processes, or other machines, compile the rest.
  const auto since = std::chrono::steady_clock::now();
  constexpr auto shortest_pause = std::chrono::milliseconds(1);
  constexpr auto longest_pause = std::chrono::milliseconds(10);
  constexpr auto longest_pause_for_fleet = std::chrono::milliseconds(100);
  for (auto pause = shortest_pause; !places.empty();
       pause = std::min(pause * 2, shared_.waits_for_fleet() ? longest_pause_for_fleet : longest_pause)) {
    const auto if_locked = if_locked_after(std::chrono::steady_clock::now() - since);
    const std::size_t before = places.size();
    places = batch.run(places, Batch::Start::all_at_once, get_if(if_locked));
    if (places.size() < before)
      pause = shortest_pause;
    else
      std::this_thread::sleep_for(pause);
  }
  return batch.finish();
}

PreloadReport Levels::refresh(const std::filesystem::path& record, const ProgressCallback& progress) {
  if (auto refusal = refusal_of_call()) return {0, {std::move(*refusal)}};
  const UnderWay::Call call(under_way_);
  const auto read = key::RequestRecord::read(record);
  if (!read) return {0, {read.error()}};
  std::set<Digest> present;
  if (disk_)
    if (const auto items = disk_->list())
      for (const store::StoredItem& item : *items) present.insert(item.key.digest);
  PreloadReport report;
  std::vector<const key::RequestRecord::Entry*> missing;
  for (const auto& entry : read->entries()) {
    if (entry.api != backend_->identity().api) continue;
    if (present.contains(entry.key.digest))
      ++report.ready;
    else
      missing.push_back(&entry);
  }
  std::ranges::stable_sort(missing, std::ranges::greater(), [](const auto* entry) { return entry->compile_time; });
  // A part at a time, so that neither the files of all requests nor all programs are there at once.
  constexpr std::size_t part = 128;
  for (std::size_t begin = 0; begin < missing.size(); begin += part) {
    const auto some = std::span(missing).subspan(begin, std::min(part, missing.size() - begin));
    const auto pass_on = [&](const Progress& now) {
      const bool is_all = some.size() == missing.size();
      progress({begin + now.done, missing.size(), begin + now.index, now.name, now.error,
                is_all ? now.remaining : std::nullopt});
    };
    PreloadReport done = refresh(*read, some, progress ? ProgressCallback(pass_on) : ProgressCallback());
    report.ready += done.ready;
    std::ranges::move(done.errors, std::back_inserter(report.errors));
  }
  return report;
}

PreloadReport Levels::refresh(const key::RequestRecord& record,
                              std::span<const key::RequestRecord::Entry* const> entries,
                              const ProgressCallback& progress) {
  const auto folder = base::ScratchFolder::create();
  if (!folder) return {0, {folder.error()}};
  PreloadReport report;
  std::vector<Request> requests;
  std::vector<Request> not_in_memory;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    auto request = rebuilt(record, *entries[i], folder->path() / std::to_string(i));
    if (!request) {
      report.errors.push_back(std::move(request).error());
      continue;
    }
    if (!table_.find_uncounted(request->key().digest)) not_in_memory.push_back(*request);
    requests.push_back(*std::move(request));
  }
  PreloadReport compiled = preload(requests, progress, false);
  for (const Request& request : not_in_memory) static_cast<void>(table_.evict(request.key().digest));
  report.ready = compiled.ready;
  std::ranges::move(compiled.errors, std::back_inserter(report.errors));
  return report;
}

std::vector<double> Levels::sort_by_cost(std::span<const Request> requests,
                                         std::vector<std::size_t>& places) const {
  std::map<std::string, std::chrono::nanoseconds> times;
  if (disk_ && places.size() > 1) {
    std::set<std::string> names;
    for (const std::size_t i : places) names.insert(requests[i].name());
    times = store::compile_times(disk_->path().parent_path(), backend_->identity(), names, system_);
  }
  // An unknown program takes as long for each byte of its source as the known ones.
  double known_time = 0;
  double known_bytes = 0;
  for (const std::size_t i : places)
    if (const auto known = times.find(requests[i].name()); known != times.end()) {
      known_time += static_cast<double>(known->second.count());
      known_bytes += static_cast<double>(requests[i].source().size());
    }
  const double time_per_byte = known_bytes > 0 ? known_time / known_bytes : 1;
  std::vector<double> costs(requests.size());
  for (const std::size_t i : places) {
    const auto known = times.find(requests[i].name());
    costs[i] = known != times.end() ? static_cast<double>(known->second.count())
                                    : time_per_byte * static_cast<double>(requests[i].source().size());
  }
  std::ranges::stable_sort(places, [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  return costs;
}

PreloadReport Levels::warm(const ProgressCallback& progress) {
  if (auto refusal = refusal_of_call()) return {0, {std::move(*refusal)}};
  const UnderWay::Call call(under_way_);
  if (!disk_) return {};
  auto items = disk_->list();
  if (!items) return {0, {std::move(items).error()}};
  return warm(std::move(*items), progress);
}

PreloadReport Levels::warm(const std::filesystem::path& record, const ProgressCallback& progress) {
  if (auto refusal = refusal_of_call()) return {0, {std::move(*refusal)}};
  const UnderWay::Call call(under_way_);
  auto keys = keys_of(record, backend_->identity().api);
  if (!keys) return {0, {std::move(keys).error()}};
  if (!disk_) return {};
  if (!shared_.is_empty() && options_.save) {
    Prefetch prefetch(shared_, disk_, [keys = *keys] { return keys; });
    prefetch.wait();
    prefetched_ += prefetch.saved();
  }
  auto items = disk_->list();
  if (!items) return {0, {std::move(items).error()}};
  std::set<Digest> wanted;
  for (const Key& key : *keys) wanted.insert(key.digest);
  std::erase_if(*items, [&](const store::StoredItem& item) { return !wanted.contains(item.key.digest); });
  return warm(std::move(*items), progress);
}

std::unique_ptr<Prefetch> Levels::prefetch_of_record() {
  const std::filesystem::path& record = *options_.record;
  if (record.empty() || !disk_ || !options_.save || shared_.is_empty()) return nullptr;
  return std::make_unique<Prefetch>(shared_, disk_, [record, api = backend_->identity().api] {
    auto keys = keys_of(record, api);
    // The first run has none yet, and the recorder reports what is wrong with a record.
    return keys ? std::move(*keys) : std::vector<Key>();
  });
}

PreloadReport Levels::warm(std::vector<store::StoredItem> items, const ProgressCallback& progress) {
  std::sort(items.begin(), items.end(),
            [](const store::StoredItem& a, const store::StoredItem& b) { return a.last_use > b.last_use; });
  // Select as many as fit in memory, and load the most recently used last, so that they are evicted last.
  std::size_t room = 0;
  std::uint64_t bytes = 0;
  while (room < items.size() && room < options_.max_programs && bytes <= options_.max_bytes)
    bytes += items[room++].stored_bytes;
  items.resize(room);
  std::reverse(items.begin(), items.end());
  const Batch::Name name = [&](std::size_t i) -> const std::string& { return items[i].key.name; };
  Batch batch(items.size(), name, progress, workers_, batch_threads());
  std::vector<double> costs;
  for (const store::StoredItem& item : items) costs.push_back(static_cast<double>(item.stored_bytes));
  batch.expect(std::move(costs));
  std::vector<std::size_t> places(items.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  batch.run(places, Batch::Start::gradually, [&](std::size_t i, auto) -> Batch::Tried {
    const Key& key = items[i].key;
    for (;;) {
      // The error goes only to this caller: a get() that joins must continue to the compiler.
      std::optional<Error> problem;
      auto [outcome, joined] = flights_.fly(
          key.digest, [&] { return table_.find_uncounted(key.digest); },
          [&]() -> Outcome {
            auto program = warm_one(key);
            if (program) return std::optional(std::move(*program));
            problem = std::move(program).error();
            return std::optional<Program>{};
          });
      if (outcome && *outcome) return {Batch::End::done};
      if (!joined)
        return {Batch::End::failed, outcome ? std::move(problem) : std::optional(std::move(outcome).error())};
    }
  });
  return batch.finish();
}

Result<Program> Levels::warm_one(const Key& key) {
  auto loaded = load_stored(key);
  if (!loaded) {
    // Retry under the lock: another process may be replacing the entry.
    const auto lock = uses_locks() ? disk_->lock(key, options_.lock_timeout) : std::nullopt;
    loaded = load_stored(key);
    if (!loaded) {
      reject(key, loaded.error());
      if (lock) remove_unusable(loaded.error(), *lock);
      return std::move(loaded).error();
    }
  }
  if (!*loaded) return Error(ErrorCode::io, key.name + " was removed from the disk before it could be loaded");
  // A file name may hold only part of the program's name; the entry has all of it.
  const store::Entry& entry = (*loaded)->stored.entry;
  const auto facts = store::parse_json(entry.facts);
  const bool named = facts && facts->contains("name") && (*facts)["name"].is_string();
  return admit({key.digest, named ? (*facts)["name"].get<std::string>() : key.name}, std::move((*loaded)->module),
               Origin::disk, entry.compile_time);
}

}  // namespace kiln::cache
