#include "cache/guarded_store.hpp"

#include <exception>
#include <new>
#include <utility>

#include <fmt/format.h>

namespace kiln::cache {
namespace {

/// A call on a store; a linked list of the calls on this thread's stack.
struct Call {
  const void* owner;
  const Call* outer;
};
thread_local constinit const Call* innermost = nullptr;

template <class Function>
auto guarded(const void* owner, const EntryAddress& address, Function function) -> decltype(function()) {
  const Call call{owner, innermost};
  innermost = &call;
  struct Leave {
    const Call* outer;
    ~Leave() { innermost = outer; }
  } const leave{call.outer};
  const auto failed = [&address](std::string_view what) {
    return Error(ErrorCode::io, fmt::format("the store's call for {} threw {}", address.key.name, what));
  };
  try {
    return function();
  } catch (const std::exception& exception) {
    const char* what = exception.what();
    return failed(fmt::format("an exception: {}", what != nullptr ? what : "no message"));
  } catch (...) {
    return failed("an exception of an unknown type");
  }
}

}  // namespace

Result<std::optional<std::vector<std::byte>>> GuardedStore::get(const EntryAddress& address) const {
  return guarded(owner_, address, [&] { return store_->get(address); });
}

Result<void> GuardedStore::put(const EntryAddress& address, std::span<const std::byte> sealed) const {
  return guarded(owner_, address, [&] { return store_->put(address, sealed); });
}

bool GuardedStore::is_called_by(const void* owner) noexcept {
  for (const Call* call = innermost; call != nullptr; call = call->outer)
    if (call->owner == owner) return true;
  return false;
}

}  // namespace kiln::cache
