#include <utility>

#include <fmt/format.h>

#include "cache/path.hpp"
#include "store/directory.hpp"

// The path of a request, from top to bottom: memory, disk, shared store, compiler.
namespace kiln {
namespace {

std::shared_ptr<const store::UnsavedEntry> unsaved(const Request& request, Binary binary,
                                                   std::chrono::nanoseconds compile_time) {
  store::Entry entry{
      .compile_time = compile_time, .created = std::chrono::system_clock::now(), .facts = request.describe()};
  entry.parts.emplace(store::binary_part, std::move(binary));
  return std::make_shared<const store::UnsavedEntry>(store::UnsavedEntry{std::move(entry)});
}

}  // namespace

Result<Program> Cache::get(const Request& request) {
  if (Program program = state_->table().find_at_once(request.key().digest)) [[likely]]
    return program;
  return state_->path().get_or_compile(request);
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
  if (auto refusal = refusal_of_call()) {
    ++counters_.failures;
    return std::move(*refusal);
  }
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
    if (auto program = from_disk(key, lock, Look::first)) return program;
    // One process compiles; the others find its work on disk when they have the lock.
    lock = lock_key(key);
  }
  if (auto program = from_disk(key, lock, Look::last)) return program;
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
    save(request.key(), unsaved(request, std::move(*compiled->binary), took), std::move(lock), Publish::yes);
  }
  return program;
}

std::optional<Program> Cache::Path::from_disk(const Key& key, const std::optional<KeyLock>& lock, Look look) {
  if (!disk_) return std::nullopt;
  // What is still waiting to be saved is as good as on disk.
  if (const auto waiting = being_saved(key.digest))
    if (auto module = with_room([&] { return backend_->load(*waiting->entry.binary()); })) {
      ++counters_.disk_hits;
      counters_.compile_saved_ns += waiting->entry.compile_time.count();
      return admit(key, std::move(*module), Origin::disk, waiting->entry.compile_time);
    }
  auto loaded = load(*guarded_disk_, key);
  if (loaded && *loaded) {
    const auto compile_time = (*loaded)->stored.entry.compile_time;
    ++counters_.disk_hits;
    counters_.compile_saved_ns += compile_time.count();
    return admit(key, std::move((*loaded)->module), Origin::disk, compile_time);
  }
  if (!loaded && look == Look::last) {
    reject(key, loaded.error());
    if (lock) remove_unusable(loaded.error(), *lock);
  }
  return std::nullopt;
}

std::optional<Program> Cache::Path::from_shared(const Key& key, std::optional<KeyLock>& lock) {
  if (!shared_) return std::nullopt;
  auto loaded = load(*shared_, key);
  if (!loaded) reject(key, loaded.error());
  if (!loaded || !*loaded) return std::nullopt;
  const auto compile_time = (*loaded)->stored.entry.compile_time;
  ++counters_.shared_hits;
  counters_.compile_saved_ns += compile_time.count();
  Program program = admit(key, std::move((*loaded)->module), Origin::shared, compile_time);
  // The driver has taken it, so it is worth keeping on this machine's own disk.
  save(key, std::make_shared<const store::UnsavedEntry>(std::move((*loaded)->stored)), std::move(lock),
       Publish::no);
  return program;
}

Result<std::optional<Cache::Path::Loaded>> Cache::Path::load(const cache::GuardedStore& store, const Key& key) {
  auto sealed = store.get(address_of(key));
  if (!sealed) return std::move(sealed).error();
  if (!*sealed) return std::optional<Loaded>{};
  const auto unusable = [&](const Error& why) {
    const std::string place = guarded_disk_ && &store == &*guarded_disk_
                                  ? (disk_->path() / store::entry_file_name(key)).string()
                                  : std::string("the entry in the shared store");
    return Error(why.code(), fmt::format("{}: {}", place, why.message()), why.log());
  };
  const auto damaged = [&](std::string why) { return unusable(Error(ErrorCode::damaged, std::move(why))); };
  auto opened = store::open_entry(**sealed);
  if (!opened) return unusable(opened.error());
  if (opened->label.key != key.digest) return damaged("it holds another program");
  if (opened->label.identity != identity_digest_)
    return damaged("it was made for another device, driver or compiler");
  const Binary* binary = opened->entry.binary();
  if (binary == nullptr) return damaged("it has no binary");
  auto module = with_room([&] { return backend_->load(*binary); });
  if (!module) return unusable(module.error());
  return std::optional(Loaded{std::move(*module), {std::move(opened->entry), std::move(**sealed)}});
}

void Cache::Path::reject(const Key& key, const Error& problem) {
  ++counters_.store_failures;
  options_.log.warning(fmt::format("{} cannot be used as it is stored: {}", key.name, problem.message()));
}

void Cache::Path::remove_unusable(const Error& problem, const KeyLock& lock) {
  if (problem.code() != ErrorCode::damaged && problem.code() != ErrorCode::load_failed) return;
  if (auto removed = lock.remove_entry())
    ++counters_.replaced;
  else
    options_.log.debug(removed.error().message());
}

Program Cache::Path::admit(const Key& key, std::unique_ptr<Module> module, Origin origin,
                           std::chrono::nanoseconds compile_time) {
  store::Performance measured;
  if (disk_) {
    // A program that was evicted and comes back has the performance that was noted meanwhile.
    for (const auto& [digest, gflops, gbps] : table_.take_notes_of_evicted())
      disk_->note_performance(digest, {gflops, gbps});
    measured = disk_->performance(key.digest);
  }
  return table_.insert(
      {key, std::move(module), origin, compile_time, measured.gflops, measured.gbps, origin == Origin::disk});
}

Result<Program> Cache::Path::add(const Request& request, Compiled compiled, std::chrono::nanoseconds compile_time) {
  if (request.error()) {
    ++counters_.failures;
    return *request.error();
  }
  if (compiled.module == nullptr)
    return Error(ErrorCode::invalid_request, fmt::format("{} is to be added without a module", request.name()));
  if (auto refusal = refusal_of_call()) {
    ++counters_.failures;
    return std::move(*refusal);
  }
  const Digest& digest = request.key().digest;
  const cache::UnderWay::Call call(under_way_);
  for (;;) {
    auto [outcome, joined] = flights_.fly(
        digest, [&] { return table_.find_locked(digest); },
        [&]() -> Outcome {
          Program program = table_.insert({request.key(), std::move(compiled.module), Origin::added, compile_time});
          if (compiled.binary) {
            save(request.key(), unsaved(request, std::move(*compiled.binary), compile_time), std::nullopt,
                 Publish::yes);
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

void Cache::Path::save(const Key& key, Unsaved entry, std::optional<KeyLock> lock, Publish publish) {
  if (!options_.save) {
    if (disk_) table_.keep_unsaved(key.digest, std::move(entry));
    return;
  }
  const bool upload = publish == Publish::yes && uploader_;
  if (!disk_ && !upload) return;
  if (disk_) {
    const base::MutexLock guard(saving_mutex_);
    saving_.insert_or_assign(key.digest, entry);
  }
  // The key's lock is released when the program is on disk, where the next process will look for it.
  auto held = std::make_shared<std::optional<KeyLock>>(std::move(lock));
  writer_.write([this, key, entry = std::move(entry), held = std::move(held), upload] {
    std::shared_ptr<const std::vector<std::byte>> sealed;
    {
      // Whatever is thrown, such as for want of memory, the entry no longer waits to be saved.
      struct Done {
        Path& path;
        const Digest& key;
        const Unsaved& entry;
        ~Done() { path.no_longer_saving(key, entry); }
      } const done{*this, key.digest, entry};
      sealed = seal(key, *entry);
      if (disk_) static_cast<void>(store_now(key, entry, *sealed));
    }
    held->reset();
    if (upload) uploader_->upload(address_of(key), sealed);
  });
}

void Cache::Path::no_longer_saving(const Digest& digest, const Unsaved& entry) {
  const base::MutexLock guard(saving_mutex_);
  const auto found = saving_.find(digest);
  if (found != saving_.end() && found->second == entry) saving_.erase(found);
}

Cache::Path::Unsaved Cache::Path::being_saved(const Digest& digest) {
  const base::MutexLock guard(saving_mutex_);
  const auto found = saving_.find(digest);
  return found != saving_.end() ? found->second : nullptr;
}

std::shared_ptr<const std::vector<std::byte>> Cache::Path::seal(const Key& key,
                                                                const store::UnsavedEntry& entry) const {
  return std::make_shared<const std::vector<std::byte>>(
      entry.sealed.empty() ? store::seal_entry(label_of(key), entry.entry) : entry.sealed);
}

Result<void> Cache::Path::store_now(const Key& key, const Unsaved& entry, std::span<const std::byte> sealed) {
  auto put = disk_->put(address_of(key), sealed, store::meta_of(label_of(key), entry->entry, sealed.size()));
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

std::optional<Error> Cache::Path::refusal_of_call() const {
  if (!cache::GuardedStore::is_called_by(this)) return std::nullopt;
  return Error(ErrorCode::invalid_request, "a store must not request programs from the cache that it belongs to");
}

}  // namespace kiln
