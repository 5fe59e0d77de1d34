#include "rivals.hpp"

namespace kiln::bench {
namespace {

Result<LoadedProgram> compile(Backend& backend, const Request& request) {
  auto compiled = backend.compile(request);
  if (!compiled) return std::move(compiled).error();
  auto program = std::make_shared<Loaded>();
  program->module = std::move(compiled->module);
  return program;
}

}  // namespace

Result<Unsynchronized::Handle> Unsynchronized::get(const Request& request) {
  ++requests_;
  const Digest& digest = request.key().digest;
  for (std::size_t i = digest.word(0) % slot_count;; i = (i + 1) % slot_count) {
    Entry* entry = slots_[i].get();
    if (entry == nullptr) return miss(request);
    if (entry->digest != digest) continue;
    entry->last_use = ++clock_;
    ++hits_;
    return Handle(entry);
  }
}

Result<Unsynchronized::Handle> Unsynchronized::miss(const Request& request) {
  auto compiled = backend_.compile(request);
  if (!compiled) return std::move(compiled).error();
  const Digest& digest = request.key().digest;
  std::size_t i = digest.word(0) % slot_count;
  while (slots_[i] != nullptr) i = (i + 1) % slot_count;
  slots_[i] = std::make_unique<Entry>(Entry{.digest = digest, .module = std::move(compiled->module)});
  return Handle(slots_[i].get());
}

Result<LoadedProgram> CriticalSection::get(const Request& request) {
  const std::lock_guard lock(mutex_);
  const auto found = items_.find(request.key().digest);
  if (found != items_.end()) {
    by_use_.splice(by_use_.begin(), by_use_, found->second);
    ++hits_;
    return found->second->program;
  }
  auto program = compile(backend_, request);
  if (!program) return program;
  by_use_.push_front({request.key().digest, *program});
  items_.emplace(request.key().digest, by_use_.begin());
  return program;
}

Result<LoadedProgram> SharedMutex::get(const Request& request) {
  {
    const std::shared_lock lock(mutex_);
    const auto found = items_.find(request.key().digest);
    if (found != items_.end()) {
      found->second->stamp(now_.load(std::memory_order_relaxed));
      return found->second;
    }
  }
  auto program = compile(backend_, request);
  if (!program) return program;
  const std::unique_lock lock(mutex_);
  (*program)->stamp(now_.fetch_add(1, std::memory_order_relaxed));
  return items_.try_emplace(request.key().digest, *program).first->second;
}

#if KILN_BENCH_TBB
Result<LoadedProgram> Tbb::get(const Request& request) {
  {
    Map::const_accessor found;
    if (items_.find(found, request.key().digest)) {
      found->second->stamp(now_.load(std::memory_order_relaxed));
      return found->second;
    }
  }
  auto program = compile(backend_, request);
  if (!program) return program;
  (*program)->stamp(now_.fetch_add(1, std::memory_order_relaxed));
  Map::accessor inserted;
  if (items_.insert(inserted, request.key().digest)) inserted->second = *program;
  return inserted->second;
}
#endif

}  // namespace kiln::bench
