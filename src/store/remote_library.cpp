#include "store/remote_library.hpp"

#include <atomic>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/dynamic_library.hpp"
#include "base/installed.hpp"
#include "base/process.hpp"

namespace kiln::store {
namespace {

constexpr const char* library_name = "libkiln_remote.so.0";
constexpr const char* override_variable = "KILN_REMOTE";

struct RemoteLibrary {
  OpenRemoteStore* open;
};

Result<RemoteLibrary> find_library() {
  const auto unusable = [](const std::string& why) {
    return Error(ErrorCode::unsupported,
                 fmt::format("{}; install it together with Kiln, or set {} to its path", why, override_variable));
  };
  const auto path = base::find_own_library(library_name, override_variable);
  if (!path)
    return unusable(fmt::format(
        "{}, which has the stores of servers, is not beside Kiln and not in its library folder", library_name));
  // Never unloaded: its threads may still end.
  auto library = base::DynamicLibrary::open_for_good(path->string());
  if (!library) return unusable(library.error().message());
  const auto version = library->function<const char*()>("kiln_remote_version");
  if (version == nullptr || std::string_view(version()) != KILN_VERSION)
    return unusable(fmt::format("{} belongs to another version of Kiln than {}", path->string(), KILN_VERSION));
  auto* open = library->function<OpenRemoteStore>(remote_function);
  if (open == nullptr) return unusable(fmt::format("{} has no {}", path->string(), remote_function));
  return RemoteLibrary{open};
}

}  // namespace

Result<std::unique_ptr<ObjectStore>> open_remote_store(const StoreUrl& url) {
  static std::atomic<OpenRemoteStore*> known{nullptr};
  OpenRemoteStore* open = known.load(std::memory_order_acquire);
  if (open == nullptr) {
    auto found = find_library();
    if (!found) return std::move(found).error();
    known.store(open = found->open, std::memory_order_release);
  }
  return open(url);
}

}  // namespace kiln::store
