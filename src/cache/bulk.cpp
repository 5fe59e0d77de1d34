#include <algorithm>
#include <exception>
#include <utility>

#include "cache/path.hpp"
#include "store/json_file.hpp"

namespace kiln {

void Cache::Path::get_async(Request request, std::function<void(Result<Program>)> done) {
  if (Program program = table_.find(request.key().digest)) return done(std::move(program));
  if (auto refusal = refusal_of_call()) return done(std::move(*refusal));
  auto answer = [this, request = std::move(request), done = std::move(done)] { done(get_or_compile(request)); };
  if (backend_->usable_from_any_thread()) {
    workers_.submit(std::move(answer));
  } else {
    answer();
  }
}

PreloadReport Cache::Path::preload(std::span<const Request> requests, const ProgressCallback& progress) {
  if (auto refusal = refusal_of_call()) return {0, {std::move(*refusal)}};
  const cache::UnderWay::Call call(under_way_);
  return for_each(
      requests.size(), [&](std::size_t i) -> const std::string& { return requests[i].name(); },
      [&](std::size_t i) -> std::optional<Error> {
        if (table_.find(requests[i].key().digest)) return std::nullopt;
        auto found = get(requests[i], true);
        return found ? std::nullopt : std::optional(std::move(found).error());
      },
      progress);
}

PreloadReport Cache::Path::warm(const ProgressCallback& progress) {
  if (auto refusal = refusal_of_call()) return {0, {std::move(*refusal)}};
  const cache::UnderWay::Call call(under_way_);
  if (!disk_) return {};
  auto items = disk_->list();
  if (!items) return {0, {std::move(items).error()}};
  std::sort(items->begin(), items->end(),
            [](const store::StoredItem& a, const store::StoredItem& b) { return a.last_use > b.last_use; });
  // As many as there is room for, the last used last: they are the last to be evicted.
  std::size_t room = 0;
  std::uint64_t bytes = 0;
  while (room < items->size() && room < options_.max_programs && bytes <= options_.max_bytes)
    bytes += (*items)[room++].stored_bytes;
  items->resize(room);
  std::reverse(items->begin(), items->end());
  return for_each(
      items->size(), [&](std::size_t i) -> const std::string& { return (*items)[i].key.name; },
      [&](std::size_t i) -> std::optional<Error> {
        const Key& key = (*items)[i].key;
        for (;;) {
          // Why it could not be warmed is for this caller alone: a get() that joins goes on to compile.
          std::optional<Error> problem;
          auto [outcome, joined] = flights_.fly(
              key.digest, [&] { return table_.find_locked(key.digest); },
              [&]() -> Outcome {
                auto program = warm_one(key);
                if (program) return std::optional(std::move(*program));
                problem = std::move(program).error();
                return std::optional<Program>{};
              });
          if (outcome && *outcome) return std::nullopt;
          if (!joined) return problem;
        }
      },
      progress);
}

Result<Program> Cache::Path::warm_one(const Key& key) {
  auto loaded = load(*guarded_disk_, key);
  if (!loaded) {
    // Looked at again under the lock: another process may be replacing it at this moment.
    const auto lock = lock_key(key);
    loaded = load(*guarded_disk_, key);
    if (!loaded) {
      reject(key, loaded.error());
      if (lock) remove_unusable(loaded.error(), *lock);
      return std::move(loaded).error();
    }
  }
  if (!*loaded) return Error(ErrorCode::io, key.name + " was removed from the disk before it could be loaded");
  // A file name holds only part of some names; the entry itself has them whole.
  const store::Entry& entry = (*loaded)->stored.entry;
  const auto facts = store::parse_json(entry.facts);
  const bool named = facts && facts->contains("name") && (*facts)["name"].is_string();
  return admit({key.digest, named ? (*facts)["name"].get<std::string>() : key.name}, std::move((*loaded)->module),
               Origin::disk, entry.compile_time);
}

PreloadReport Cache::Path::for_each(std::size_t count, const std::function<const std::string&(std::size_t)>& name,
                                    const std::function<std::optional<Error>(std::size_t)>& work,
                                    const ProgressCallback& progress) {
  struct {
    base::Mutex mutex;
    base::Condition all_done;
    std::size_t done = 0;
    PreloadReport report;
    std::exception_ptr thrown;
  } shared;
  const auto one = [&](std::size_t i) {
    auto error = work(i);
    const base::MutexLock lock(shared.mutex);
    ++shared.done;
    try {
      if (progress) progress({shared.done, count, name(i), error ? &*error : nullptr});
    } catch (...) {
      shared.thrown = std::current_exception();
    }
    if (error) {
      shared.report.errors.push_back(std::move(*error));
    } else {
      ++shared.report.ready;
    }
    if (shared.done == count) shared.all_done.notify_all();
  };
  const bool parallel = backend_->usable_from_any_thread();
  for (std::size_t i = 0; i < count; ++i) {
    if (parallel) {
      workers_.submit([&one, i] { one(i); });
    } else {
      one(i);
    }
  }
  const base::MutexLock lock(shared.mutex);
  while (shared.done < count) shared.all_done.wait(shared.mutex);
  if (shared.thrown) std::rethrow_exception(shared.thrown);
  return std::move(shared.report);
}

}  // namespace kiln
