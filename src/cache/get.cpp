#include <utility>

#include <fmt/format.h>

#include "cache/path.hpp"

// The path of a request, from top to bottom: memory, disk, shared store, compiler.
namespace kiln {
namespace {

/// Stores of the user's own may throw; that is a failure like any other.
Result<std::optional<Entry>> get_from(Store& store, const Key& key) {
  try {
    return store.get(key);
  } catch (const std::exception& exception) {
    return Error(ErrorCode::io, std::string("the store threw an exception: ") + exception.what());
  }
}

}  // namespace

Result<Program> Cache::get(const Request& request) {
  if (Program program = path_->table().find_at_once(request.key().digest)) [[likely]]
    return program;
  return path_->get_or_compile(request);
}

Result<Program> Cache::Path::get_or_compile(const Request& request) {
  auto found = get(request, true);
  if (!found) return std::move(found).error();
  return std::move(**found);
}

Result<std::optional<Program>> Cache::Path::get(const Request& request, bool may_compile) {
  if (request.error()) {
    ++counters_.failures;
    return *request.error();
  }
  const Digest& digest = request.key().digest;
  if (Program program = table_.find(digest)) return std::optional(std::move(program));
  const cache::UnderWay::Call call(under_way_);
  for (;;) {
    auto [outcome, joined] = flights_.fly(
        digest, [&] { return table_.find_locked(digest); }, [&] { return fly(request, may_compile); });
    // A find() that found nothing is no answer to a get().
    if (joined && may_compile && outcome && !*outcome) continue;
    if (joined) ++counters_.joined;
    return std::move(outcome);
  }
}

Cache::Path::Outcome Cache::Path::fly(const Request& request, bool may_compile) {
  const Key& key = request.key();
  std::optional<KeyLock> lock;
  if (may_compile) {
    if (auto program = from_disk(key, Look::quick)) return program;
    // One process compiles; the others find its work on disk when they have the lock.
    lock = lock_key(key);
  }
  if (auto program = from_disk(key, lock ? Look::locked : Look::last)) return program;
  if (auto program = from_shared(key, lock)) return program;
  if (!may_compile) {
    ++counters_.absent;
    return std::optional<Program>{};
  }

  auto program = compile(request, std::move(lock));
  if (!program) {
    ++counters_.failures;
    return std::move(program).error();
  }
  return std::optional(std::move(*program));
}

Result<Program> Cache::Path::compile(const Request& request, std::optional<KeyLock> lock) {
  const auto start = std::chrono::steady_clock::now();
  auto compiled = with_room([&] { return backend_->compile(request); });
  const auto took = std::chrono::steady_clock::now() - start;
  if (!compiled) return std::move(compiled).error();
  ++counters_.compiles;
  counters_.compile_ns += took.count();
  options_.log.debug(fmt::format("compiled {} in {:.1f} ms", request.name(),
                                 std::chrono::duration<double, std::milli>(took).count()));

  Program program = table_.insert({request.key(), std::move(compiled->module), Origin::compiled, took});
  if (compiled->binary) {
    auto entry = std::make_shared<const Entry>(Entry{.binary = std::move(*compiled->binary),
                                                     .compile_time = took,
                                                     .created = std::chrono::system_clock::now(),
                                                     .facts = request.describe()});
    save(request.key(), std::move(entry), std::move(lock), true);
  }
  return program;
}

std::optional<Program> Cache::Path::from_disk(const Key& key, Look look) {
  if (!disk_) return std::nullopt;
  // What is still waiting to be saved is as good as on disk.
  if (const auto entry = being_saved(key.digest))
    if (auto module = with_room([&] { return backend_->load(entry->binary); })) {
      ++counters_.disk_hits;
      return admit(key, std::move(*module), Origin::disk, *entry);
    }
  auto loaded = load(*disk_, key, Origin::disk, look);
  if (!loaded) return std::nullopt;
  ++counters_.disk_hits;
  return std::move(loaded->program);
}

std::optional<Program> Cache::Path::from_shared(const Key& key, std::optional<KeyLock>& lock) {
  if (!options_.shared) return std::nullopt;
  auto loaded = load(*options_.shared, key, Origin::shared, lock ? Look::locked : Look::last);
  if (!loaded) return std::nullopt;
  ++counters_.shared_hits;
  // The driver has taken it, so it is worth keeping on this machine's own disk.
  save(key, std::make_shared<const Entry>(std::move(loaded->entry)), std::move(lock), false);
  return std::move(loaded->program);
}

std::optional<Cache::Path::Loaded> Cache::Path::load(Store& store, const Key& key, Origin origin, Look look) {
  auto found = get_from(store, key);
  if (found && !*found) return std::nullopt;
  std::optional<Error> problem;
  if (found) {
    Entry& entry = **found;
    auto module = with_room([&] { return backend_->load(entry.binary); });
    if (module) return Loaded{admit(key, std::move(*module), origin, entry), std::move(entry)};
    problem = std::move(module).error();
  } else {
    problem = std::move(found).error();
  }
  if (look == Look::quick) return std::nullopt;
  options_.log.warning(fmt::format("{} cannot be used as it is stored: {}", key.name, problem->message()));
  // Without the key's lock another process may be replacing it at this moment.
  const bool bad = problem->code() == ErrorCode::damaged || problem->code() == ErrorCode::load_failed;
  if (bad && look == Look::locked) {
    if (auto removed = store.remove(key))
      ++counters_.replaced;
    else
      options_.log.debug(removed.error().message());
  }
  return std::nullopt;
}

Program Cache::Path::admit(const Key& key, std::unique_ptr<Module> module, Origin origin, const Entry& entry) {
  counters_.compile_saved_ns += entry.compile_time.count();
  return table_.insert(
      {key, std::move(module), origin, entry.compile_time, entry.gflops, entry.gbps, origin == Origin::disk});
}

Result<Program> Cache::Path::add(const Request& request, Compiled compiled, std::chrono::nanoseconds compile_time) {
  if (request.error()) {
    ++counters_.failures;
    return *request.error();
  }
  if (compiled.module == nullptr)
    return Error(ErrorCode::invalid_request, fmt::format("{} is to be added without a module", request.name()));
  const Digest& digest = request.key().digest;
  const cache::UnderWay::Call call(under_way_);
  for (;;) {
    auto [outcome, joined] = flights_.fly(
        digest, [&] { return table_.find_locked(digest); },
        [&]() -> Outcome {
          Program program = table_.insert({request.key(), std::move(compiled.module), Origin::added, compile_time});
          if (compiled.binary) {
            auto entry = std::make_shared<const Entry>(Entry{.binary = std::move(*compiled.binary),
                                                             .compile_time = compile_time,
                                                             .created = std::chrono::system_clock::now(),
                                                             .facts = request.describe()});
            save(request.key(), std::move(entry), std::nullopt, true);
          }
          return std::optional(std::move(program));
        });
    if (!outcome && !joined) return std::move(outcome).error();
    // Others' failures and empty searches are no answer to an add().
    if (outcome && *outcome) {
      if (joined) ++counters_.joined;
      return std::move(**outcome);
    }
  }
}

std::optional<Cache::Path::KeyLock> Cache::Path::lock_key(const Key& key) {
  if (!disk_ || !options_.save) return std::nullopt;
  auto lock = disk_->lock(key, options_.lock_timeout);
  if (!lock) options_.log.debug(fmt::format("{} is compiled without a lock between processes", key.name));
  return lock;
}

void Cache::Path::save(const Key& key, std::shared_ptr<const Entry> entry, std::optional<KeyLock> lock,
                       bool share) {
  if (!options_.save) {
    if (disk_) table_.keep_unsaved(key.digest, std::move(entry));
    return;
  }
  share = share && options_.shared != nullptr;
  if (!disk_ && !share) return;
  if (disk_) {
    const base::MutexLock guard(saving_mutex_);
    saving_.insert_or_assign(key.digest, entry);
  }
  // The key's lock is let go when the program is on disk, where the next process will look for it.
  auto held = std::make_shared<std::optional<KeyLock>>(std::move(lock));
  writer_.write([this, key, entry = std::move(entry), held = std::move(held), share] {
    if (disk_) {
      static_cast<void>(store_now(key, entry));
      const base::MutexLock guard(saving_mutex_);
      const auto mine = saving_.find(key.digest);
      if (mine != saving_.end() && mine->second == entry) saving_.erase(mine);
    }
    held->reset();
    if (!share) return;
    if (auto put = options_.shared->put(key, *entry); !put) options_.log.warning(put.error().message());
  });
}

std::shared_ptr<const Entry> Cache::Path::being_saved(const Digest& digest) {
  const base::MutexLock guard(saving_mutex_);
  const auto found = saving_.find(digest);
  return found != saving_.end() ? found->second : nullptr;
}

Result<void> Cache::Path::store_now(const Key& key, const std::shared_ptr<const Entry>& entry) {
  auto put = disk_->put(key, *entry);
  if (put) {
    ++counters_.saves;
    table_.mark_stored(key.digest);
    return put;
  }
  ++counters_.save_failures;
  table_.keep_unsaved(key.digest, entry);
  // A full or read-only disk would say so for every program.
  const bool first = !warned_of_saving_.exchange(true);
  options_.log.write(first ? LogLevel::warning : LogLevel::debug,
                     fmt::format("{} works, but is not kept on disk: {}", key.name, put.error().message()));
  return put;
}

}  // namespace kiln
