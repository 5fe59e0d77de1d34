#include "store/remote_library.hpp"

#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/dynamic_library.hpp"
#include "base/installed.hpp"
#include "base/process.hpp"
#include "base/try.hpp"

namespace kiln::store {
namespace {

constexpr const char* library_name = "libkiln_remote.so.0";
constexpr const char* override_variable = "KILN_REMOTE";

struct RemoteLibrary {
  OpenRemoteStore* open;
  OpenRegistry* open_registry;
};

Result<RemoteLibrary> find_library() {
  const auto unusable = [](const std::string& why) {
    return Error(ErrorCode::unsupported,
                 fmt::format("{}; install it together with Kiln, or set {} to its path", why, override_variable));
  };
  const auto path = base::find_own_library(library_name, override_variable);
  if (!path)
    return unusable(fmt::format(
        "{}, which has the stores of servers, is not beside Kiln and not in its library folder, or other users can "
        "write there",
        library_name));
  // Never unloaded: its threads may still end.
  auto library = base::DynamicLibrary::open_for_good(path->string());
  if (!library) return unusable(library.error().message());
  const auto version = library->function<const char*()>("kiln_remote_version");
  if (version == nullptr || std::string_view(version()) != KILN_VERSION)
    return unusable(fmt::format("{} belongs to another version of Kiln than {}", path->string(), KILN_VERSION));
  const auto interface = library->function<std::uint64_t()>("kiln_remote_interface");
  if (interface == nullptr || interface() != remote_interface())
    return unusable(fmt::format("{} belongs to another build of Kiln {}", path->string(), KILN_VERSION));
  auto* open = library->function<OpenRemoteStore>(remote_function);
  if (open == nullptr) return unusable(fmt::format("{} has no {}", path->string(), remote_function));
  auto* open_registry = library->function<OpenRegistry>(remote_registry_function);
  if (open_registry == nullptr)
    return unusable(fmt::format("{} has no {}", path->string(), remote_registry_function));
  auto* start = library->function<StartRemoteLibrary>(remote_start_function);
  if (start == nullptr) return unusable(fmt::format("{} has no {}", path->string(), remote_start_function));
  // Its calls repeat what fails here, with the reason.
  static_cast<void>(start());
  return RemoteLibrary{open, open_registry};
}

/// `server` is for messages.
Result<RemoteLibrary> remote_library(const std::string& server) {
  // libcurl reads the caller's environment, for example SSLKEYLOGFILE and http_proxy.
  if (base::has_more_rights_than_its_caller())
    return Error(
        ErrorCode::unsupported,
        fmt::format("{} is a server, and set-uid programs and others with more rights than their caller use "
                    "no servers; use a folder",
                    server));
  static std::atomic<OpenRemoteStore*> known_open{nullptr};
  static std::atomic<OpenRegistry*> known_open_registry{nullptr};
  if (OpenRemoteStore* open = known_open.load(std::memory_order_acquire); open != nullptr)
    return RemoteLibrary{open, known_open_registry.load(std::memory_order_relaxed)};
  // A fork while the libraries start would leave the child with locks that nobody holds, so it waits.
  auto& starting = base::once_per_process<base::ForkMutex>(
      [] { return std::make_unique<base::ForkMutex>(base::ForkMutex::Order::outer); });
  const base::MutexLock lock(starting);
  const RemoteLibrary library = KILN_TRY(find_library());
  known_open_registry.store(library.open_registry, std::memory_order_relaxed);
  known_open.store(library.open, std::memory_order_release);
  return library;
}

}  // namespace

Result<std::unique_ptr<ObjectStore>> open_remote_store(const StoreUrl& url) {
  // The lock is released before the store is opened.
  const RemoteLibrary library = KILN_TRY(remote_library(url.display()));
  return library.open(url);
}

Result<std::unique_ptr<Registry>> open_registry(const RegistryUrl& url) {
  const RemoteLibrary library = KILN_TRY(remote_library(url.display()));
  return library.open_registry(url);
}

}  // namespace kiln::store
