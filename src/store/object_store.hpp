#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <kiln/digest.hpp>
#include <kiln/result.hpp>

namespace kiln::store {

/// The longest object that is sent to a server or accepted from one.
inline constexpr std::uint64_t max_object_bytes = std::uint64_t{256} << 20;

/// A server that lists more is not believed.
inline constexpr std::size_t max_listed_names = 2'000'000;

/// When a call on a server must end. A value.
struct CallLimit {
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  /// A descriptor that becomes readable when the result is not wanted any longer; -1: none. Belongs to the caller,
  /// and only the caller reads from it.
  int cancelled = -1;
  /// The longest time in which nothing is transferred, or of get_many(): without an answer. 0: none. After the last
  /// byte of a body that was sent over HTTP, only the deadline counts, if there is one.
  std::chrono::milliseconds idle = {};

  /// The limit of a part of the call that begins now.
  CallLimit of_part() const {
    CallLimit part = *this;
    if (idle.count() > 0) part.deadline = std::min(deadline, std::chrono::steady_clock::now() + idle);
    return part;
  }
};

/// The folder of all entries: the version of their format (docs/format.md).
inline constexpr const char* entries_folder = "3";
/// The object of an entry, and the description of an identity beside its entries. `identity` is Identity::digest(),
/// as hexadecimal text.
inline std::string entry_path(const std::string& identity, const Digest& key) {
  const std::string text = key.hex();
  return std::string(entries_folder) + "/" + identity + "/" + text.substr(0, 2) + "/" + text;
}
inline std::string identity_path(const std::string& identity) {
  return std::string(entries_folder) + "/" + identity + "/identity.json";
}

/// Lists many folders on up to `streams` threads. `list` is called from any of them.
std::vector<Result<std::vector<std::string>>> list_at_once(
    std::span<const std::string> folders, std::size_t streams,
    const std::function<Result<std::vector<std::string>>(const std::string& folder)>& list);

/// The right to provide an object, which a server gives to one client at a time, for a limited time. A value.
struct Lease {
  /// Of the object that is to be provided.
  std::string path = {};
  /// Unlike that of all other clients.
  std::string token = {};
  std::chrono::milliseconds duration = {};
};

/// The answer to ObjectStore::take_lease().
struct LeaseAnswer {
  /// The caller has the lease.
  bool is_taken = false;
  /// Somebody else has it.
  bool is_held = false;
  /// The object is there. It was looked up after the lease was taken or refused.
  bool has_object = false;
};

/// Objects on a server or in a folder, by paths such as "3/<identity>/<kk>/<key>", which consist of lower-case
/// letters, digits, '.', '-' and '/'. Calls come from any number of threads at once.
///
/// Errors: timed_out at the deadline; cancelled; denied if this user has no permission, which trying again does not
/// change (HTTP 403, and 405 for put(); NOPERM of Redis); unsupported if the object is too large for the store, or
/// above max_object_bytes, or if the store has no such request; untrusted if other users can write to a folder that
/// must be private; io for everything else, also if the server does not accept the credentials or their file cannot
/// be read, because that may be corrected at any time. After unsupported, the store still works. Messages name the
/// server and never contain credentials. Each call returns by its limit, except those of a folder, which may hang
/// with its file system.
class ObjectStore {
 public:
  ObjectStore() = default;
  ObjectStore(const ObjectStore&) = delete;
  ObjectStore& operator=(const ObjectStore&) = delete;
  virtual ~ObjectStore() = default;

  /// The bytes of an object; nothing if there is none.
  virtual Result<std::optional<std::vector<std::byte>>> get(const std::string& path, const CallLimit& limit) = 0;
  /// Replaces the object. A reader sees the old bytes, the new ones or none.
  virtual Result<void> put(const std::string& path, std::span<const std::byte> bytes, const CallLimit& limit) = 0;
  virtual Result<bool> has(const std::string& path, const CallLimit& limit) = 0;
  /// Removes the object. Removing an absent object is no error. Caches never call it.
  virtual Result<void> remove(const std::string& path, const CallLimit& limit) = 0;
  /// The names of the objects and folders directly in a folder, in any order; unsupported if the server cannot list
  /// them.
  virtual Result<std::vector<std::string>> list(const std::string& folder, const CallLimit& limit) = 0;
  /// The paths of all objects below a folder, in any order. By default, lists the folders one by one,
  /// useful_streams() at once.
  virtual Result<std::vector<std::string>> list_all(const std::string& folder, const CallLimit& limit);

  /// Called with the place of a path among those asked for, on the thread of the caller.
  using Receive = std::function<void(std::size_t place, Result<std::optional<std::vector<std::byte>>> answer)>;
  /// Gets all objects, in as few round trips as the server permits, and passes on each answer once, in any order,
  /// errors too. By default, gets one after the other.
  virtual void get_many(std::span<const std::string> paths, const CallLimit& limit, const Receive& receive);
  /// How many calls at once are worthwhile: more threads would not make get_many() faster.
  virtual std::size_t useful_streams() const noexcept { return 1; }

  /// Whether the server may have leases; otherwise the next two functions fail with unsupported.
  virtual bool has_leases() const noexcept { return false; }
  /// Takes the lease, unless somebody else has it or `only_ask` is true, and looks the object up. Fails with
  /// unsupported if the server refuses leases.
  virtual Result<LeaseAnswer> take_lease(const Lease& lease, bool only_ask, const CallLimit& limit);
  /// Gives the lease back, if the token still has it. Fails with denied if the server permits that to nobody like
  /// this user.
  virtual Result<void> release_lease(const Lease& lease, const CallLimit& limit);
};

}  // namespace kiln::store
