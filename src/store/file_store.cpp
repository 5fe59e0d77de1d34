#include "store/file_store.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>

#include "base/file.hpp"
#include "base/file_system.hpp"
#include "base/try.hpp"
#include "base/unfinished_file.hpp"

namespace kiln::store {
namespace {

using base::FileHandle;
using base::FileSystem;
using base::UnfinishedFile;

/// Limits are checked after so many bytes.
constexpr std::size_t bytes_between_checks = std::size_t{1} << 20;

using Object = std::optional<std::vector<std::byte>>;
using Names = std::vector<std::string>;

/// The folder of a store, as configured.
struct Root {
  std::filesystem::path path;
  FolderAccess access;
  const FileSystem& system;
};

/// One attempt of a call.
class Attempt {
 public:
  Attempt(const Root& root, const std::string& path, const CallLimit& limit)
      : root_(root), path_(path), whole_(root.path / path), limit_(limit) {}

  Result<Object> get();
  Result<void> put(std::span<const std::byte> bytes);
  Result<bool> has();
  Result<void> remove();
  Result<Names> list();

  /// Whether the call failed because a file or folder was replaced or removed meanwhile: another attempt may
  /// succeed.
  bool was_stale() const noexcept { return was_stale_; }

 private:
  enum class Missing { leave, create };

  bool is_private() const noexcept { return root_.access == FolderAccess::private_only; }
  Result<void> check_limit() const;
  Result<void> check_trust(const struct stat& status, const std::filesystem::path& path) const;
  /// The error of the last system call, from errno.
  Error failed(std::string_view what, const std::filesystem::path& path);

  /// Opens a folder below the root, one step at a time, without following links. An empty handle if it is missing.
  Result<FileHandle> open_folder(const std::filesystem::path& folder, Missing missing);
  /// One step; `above` is AT_FDCWD for the root. `whole` is for messages.
  Result<FileHandle> enter(int above, const std::filesystem::path& name, const std::filesystem::path& whole,
                           Missing missing);
  /// Creates a folder, and the parents of the root as far as they are missing; false with errno if that fails.
  bool make_folder(int above, const std::filesystem::path& name) const;

  const Root& root_;
  const std::filesystem::path path_;
  const std::filesystem::path whole_;
  const CallLimit limit_;
  bool was_stale_ = false;
};

Result<void> Attempt::check_limit() const {
  if (std::chrono::steady_clock::now() >= limit_.deadline)
    return Error(ErrorCode::timed_out,
                 fmt::format("{} was not transferred within the time limit", whole_.string()));
  pollfd cancelled = {limit_.cancelled, POLLIN, 0};
  if (limit_.cancelled >= 0 && ::poll(&cancelled, 1, 0) > 0)
    return Error(ErrorCode::cancelled, fmt::format("the transfer of {} was cancelled", whole_.string()));
  return {};
}

Result<void> Attempt::check_trust(const struct stat& status, const std::filesystem::path& path) const {
  if (!is_private()) return {};
  if (const auto why = base::why_not_trusted(status, path))
    return Error(ErrorCode::untrusted,
                 fmt::format("{} is not trusted, because {}, or add verify=required to the URL of the store",
                             path.string(), *why));
  return {};
}

Error Attempt::failed(std::string_view what, const std::filesystem::path& path) {
  const int reason = errno;
  was_stale_ = reason == ESTALE || reason == ENOENT;
  const bool denied = reason == EACCES || reason == EPERM || reason == EROFS;
  return Error(denied ? ErrorCode::denied : ErrorCode::io,
               fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(reason)));
}

Result<FileHandle> Attempt::open_folder(const std::filesystem::path& folder, Missing missing) {
  KILN_TRY(check_limit());
  std::filesystem::path whole = root_.path;
  FileHandle handle = KILN_TRY(enter(AT_FDCWD, whole, whole, missing));
  for (const auto& name : folder) {
    if (!handle) break;
    whole /= name;
    handle = KILN_TRY(enter(handle.get(), name, whole, missing));
  }
  return handle;
}

Result<FileHandle> Attempt::enter(int above, const std::filesystem::path& name, const std::filesystem::path& whole,
                                  Missing missing) {
  // O_PATH, because a folder that cannot be listed may still hold files that can be read.
  const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC | (above == AT_FDCWD ? 0 : O_NOFOLLOW);
  const auto open = [&] { return FileHandle(root_.system.open(above, name.c_str(), flags, 0), root_.system); };
  FileHandle handle = open();
  if (!handle && errno == ENOENT) {
    if (missing == Missing::leave) return handle;
    if (!make_folder(above, name)) return failed("create the folder", whole);
    handle = open();
  }
  struct stat status {};
  if (!handle) {
    Error error = failed("open the folder", whole);
    if (!was_stale_ && root_.system.status(above, name.c_str(), &status) == 0 && S_ISLNK(status.st_mode) &&
        above != AT_FDCWD)
      return Error(ErrorCode::io, fmt::format("cannot open the folder {}: it is a symbolic link, and in a shared "
                                              "store only the root may be one",
                                              whole.string()));
    return error;
  }
  if (is_private()) {
    if (root_.system.status(handle.get(), &status) != 0) return failed("examine the folder", whole);
    KILN_TRY(check_trust(status, whole));
  }
  return handle;
}

bool Attempt::make_folder(int above, const std::filesystem::path& name) const {
  const auto make = [&] {
    // Another machine may create it at the same time.
    return root_.system.make_folder(above, name.c_str(), is_private() ? 0755 : 0777) == 0 || errno == EEXIST;
  };
  if (make()) return true;
  if (errno != ENOENT || above != AT_FDCWD || !name.has_relative_path()) return false;
  return make_folder(above, name.parent_path()) && make();
}

Result<Object> Attempt::get() {
  const FileHandle folder = KILN_TRY(open_folder(path_.parent_path(), Missing::leave));
  if (!folder) return Object();
  // Opening a FIFO would wait for its writer.
  const FileHandle handle(root_.system.open(folder.get(), path_.filename().c_str(),
                                            O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0),
                          root_.system);
  if (!handle && errno == ENOENT) return Object();
  if (!handle && errno == ELOOP)
    return Error(ErrorCode::io, fmt::format("cannot read {}: it is a symbolic link", whole_.string()));
  struct stat status {};
  if (!handle || root_.system.status(handle.get(), &status) != 0) return failed("open", whole_);
  if (!S_ISREG(status.st_mode))
    return Error(ErrorCode::io, fmt::format("cannot read {}: it is not a regular file", whole_.string()));
  KILN_TRY(check_trust(status, whole_));
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > max_object_bytes)
    return Error(ErrorCode::unsupported, fmt::format("cannot read {}: it has {} bytes, and {} are allowed",
                                                     whole_.string(), size, max_object_bytes));
  // Memory is taken as bytes arrive, because a file may claim a size that it does not have.
  std::vector<std::byte> bytes;
  std::size_t have = 0;
  while (have < size) {
    if (have > 0) KILN_TRY(check_limit());
    if (have == bytes.size()) bytes.resize(std::min<std::size_t>(size, have + bytes_between_checks));
    const ssize_t got = root_.system.read(handle.get(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed("read", whole_);
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return Object(std::move(bytes));
}

Result<void> Attempt::put(std::span<const std::byte> bytes) {
  const std::filesystem::path path = whole_.parent_path();
  const FileHandle folder = KILN_TRY(open_folder(path_.parent_path(), Missing::create));
  UnfinishedFile unfinished(folder.get(), is_private() ? 0644 : 0666, root_.system);
  if (!unfinished.exists()) return failed("create a file in", path);
  for (auto rest = bytes; !rest.empty();) {
    if (rest.size() < bytes.size()) KILN_TRY(check_limit());
    const auto part = rest.first(std::min(rest.size(), bytes_between_checks));
    if (!unfinished.write(part)) return failed("write", whole_);
    rest = rest.subspan(part.size());
  }
  if (!unfinished.close_and_rename(path_.filename())) return failed("write", whole_);
  return {};
}

Result<bool> Attempt::has() {
  const FileHandle folder = KILN_TRY(open_folder(path_.parent_path(), Missing::leave));
  if (!folder) return false;
  struct stat status {};
  if (root_.system.status(folder.get(), path_.filename().c_str(), &status) != 0) {
    if (errno == ENOENT) return false;
    return failed("examine", whole_);
  }
  if (!S_ISREG(status.st_mode)) return false;
  KILN_TRY(check_trust(status, whole_));
  return true;
}

Result<void> Attempt::remove() {
  const FileHandle folder = KILN_TRY(open_folder(path_.parent_path(), Missing::leave));
  if (folder && root_.system.unlink(folder.get(), path_.filename().c_str()) != 0 && errno != ENOENT)
    return failed("remove", whole_);
  return {};
}

Result<Names> Attempt::list() {
  Names names;
  auto opened = open_folder(path_, Missing::leave);
  // A file that somebody else put there is no reason to list nothing.
  if (!opened && KILN_TRY(has())) return names;
  const FileHandle folder = KILN_TRY(std::move(opened));
  if (folder && root_.system.list(folder.get(), &names) != 0) return failed("list", whole_);
  // Temporary files, and those that NFS clients keep for open files, are no objects.
  std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
  return names;
}

class FileStore final : public ObjectStore {
 public:
  FileStore(std::filesystem::path root, FolderAccess access)
      : root_{std::move(root), access, FileSystem::system()} {}

  Result<Object> get(const std::string& path, const CallLimit& limit) override {
    return until_not_stale(path, limit, [](Attempt& attempt) { return attempt.get(); });
  }

  Result<void> put(const std::string& path, std::span<const std::byte> bytes, const CallLimit& limit) override {
    if (bytes.size() > max_object_bytes)
      return Error(ErrorCode::unsupported,
                   fmt::format("cannot write {}: it has {} bytes, and {} are allowed", (root_.path / path).string(),
                               bytes.size(), max_object_bytes));
    return until_not_stale(path, limit, [bytes](Attempt& attempt) { return attempt.put(bytes); });
  }

  Result<bool> has(const std::string& path, const CallLimit& limit) override {
    return until_not_stale(path, limit, [](Attempt& attempt) { return attempt.has(); });
  }

  Result<void> remove(const std::string& path, const CallLimit& limit) override {
    return until_not_stale(path, limit, [](Attempt& attempt) { return attempt.remove(); });
  }

  Result<Names> list(const std::string& folder, const CallLimit& limit) override {
    return until_not_stale(folder, limit, [](Attempt& attempt) { return attempt.list(); });
  }

  /// Of a network file system.
  std::size_t useful_streams() const noexcept override { return 8; }

 private:
  template <class Call>
  std::invoke_result_t<Call, Attempt&> until_not_stale(const std::string& path, const CallLimit& limit,
                                                       Call call) const {
    constexpr int most_attempts = 3;
    for (int i = 0; i < most_attempts; ++i) {
      Attempt attempt(root_, path, limit);
      auto result = call(attempt);
      if (result.ok() || !attempt.was_stale()) return result;
    }
    return Error(ErrorCode::io,
                 fmt::format("cannot use {}: its folder is missing, or other machines replace it all the time",
                             (root_.path / path).string()));
  }

  const Root root_;
};

}  // namespace

Result<std::unique_ptr<ObjectStore>> make_file_store(std::filesystem::path root, FolderAccess access) {
  if (!root.is_absolute())
    return Error(ErrorCode::invalid_request,
                 fmt::format("the folder {} of a shared store is not an absolute path", root.string()));
  return std::unique_ptr<ObjectStore>(std::make_unique<FileStore>(std::move(root), access));
}

bool is_trusted_folder(const std::filesystem::path& root) { return base::Folder::open(root, false).ok(); }

}  // namespace kiln::store
