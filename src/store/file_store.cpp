#include "store/file_store.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/file.hpp"
#include "base/file_system.hpp"
#include "base/try.hpp"

namespace kiln::store {
namespace {

using base::FileHandle;
using base::FileSystem;

/// Limits are checked after so many bytes.
constexpr std::size_t bytes_between_checks = std::size_t{1} << 20;
constexpr std::string_view temporary_prefix_of_store = ".tmp-";

/// The error of the last system call, from errno.
Error folder_error(std::string_view what, const std::filesystem::path& path) {
  const int reason = errno;
  const bool denied = reason == EACCES || reason == EPERM || reason == EROFS;
  return Error(denied ? ErrorCode::denied : ErrorCode::io,
               fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(reason)));
}

/// Nothing if the file or folder was replaced or removed meanwhile: another attempt may succeed.
template <class T>
std::optional<Result<T>> folder_error_unless_stale(std::string_view what, const std::filesystem::path& path) {
  if (errno == ESTALE || errno == ENOENT) return std::nullopt;
  return folder_error(what, path);
}

template <class T, class Attempt>
Result<T> until_not_stale(const std::filesystem::path& path, Attempt attempt) {
  constexpr int most_attempts = 3;
  for (int i = 0; i < most_attempts; ++i)
    if (std::optional<Result<T>> result = attempt()) return *std::move(result);
  return Error(ErrorCode::io,
               fmt::format("cannot use {}: its folder is missing, or other machines replace it all the time",
                           path.string()));
}

Result<void> check_limit(const CallLimit& limit, const std::filesystem::path& path) {
  if (std::chrono::steady_clock::now() >= limit.deadline)
    return Error(ErrorCode::timed_out, fmt::format("{} was not transferred within the time limit", path.string()));
  pollfd cancelled = {limit.cancelled, POLLIN, 0};
  if (limit.cancelled >= 0 && ::poll(&cancelled, 1, 0) > 0)
    return Error(ErrorCode::cancelled, fmt::format("the transfer of {} was cancelled", path.string()));
  return {};
}

/// A file that is removed on destruction unless it was renamed.
class UnfinishedFile {
 public:
  UnfinishedFile(int folder, const FileSystem& system) : folder_(folder), system_(system) {
    // Random, because a name must differ from those of other machines, and those of processes with this pid there.
    std::array<std::uint64_t, 2> random = {};
    const bool is_random = getrandom(random.data(), sizeof random, 0) == sizeof random;
    name_ = fmt::format("{}{:016x}{:016x}", temporary_prefix_of_store, random[0], random[1]);
    if (is_random)
      handle_ = FileHandle(
          system_.open(folder_, name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666),
          system_);
    exists_ = static_cast<bool>(handle_);
  }
  ~UnfinishedFile() {
    // NFS keeps an open file under another name.
    handle_.close();
    if (exists_) system_.unlink(folder_, name_.c_str());
  }
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

  bool exists() const noexcept { return exists_; }

  bool write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = system_.write(handle_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written == 0) errno = ENOSPC;
      if (written <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return true;
  }

  /// NFS sends the last bytes, and reports a full disk, only when the file is closed.
  bool close_and_rename(const std::string& name) {
    if (!handle_.close() || system_.rename(folder_, name_.c_str(), name.c_str()) != 0) return false;
    exists_ = false;
    return true;
  }

 private:
  int folder_;
  const FileSystem& system_;
  std::string name_;
  FileHandle handle_;
  bool exists_ = false;
};

class FileStore final : public ObjectStore {
 public:
  explicit FileStore(std::filesystem::path root) : root_(std::move(root)) {}

  Result<std::optional<std::vector<std::byte>>> get(const std::string& path, const CallLimit& limit) override {
    const std::filesystem::path file = root_ / path;
    return until_not_stale<Object>(file, [&] { return read(file, limit); });
  }

  Result<void> put(const std::string& path, std::span<const std::byte> bytes, const CallLimit& limit) override {
    const std::filesystem::path file = root_ / path;
    if (bytes.size() > max_object_bytes)
      return Error(ErrorCode::io, fmt::format("cannot write {}: it has {} bytes, and {} are allowed", file.string(),
                                              bytes.size(), max_object_bytes));
    return until_not_stale<void>(file, [&] { return write(file, bytes, limit); });
  }

  Result<bool> has(const std::string& path, const CallLimit& limit) override {
    const std::filesystem::path file = root_ / path;
    return until_not_stale<bool>(file, [&]() -> std::optional<Result<bool>> {
      KILN_TRY(check_limit(limit, file));
      struct stat status {};
      if (system_.status(AT_FDCWD, file.c_str(), &status) == 0) return S_ISREG(status.st_mode);
      if (errno == ENOENT) return false;
      return folder_error_unless_stale<bool>("examine", file);
    });
  }

  Result<void> remove(const std::string& path, const CallLimit& limit) override {
    const std::filesystem::path file = root_ / path;
    return until_not_stale<void>(file, [&]() -> std::optional<Result<void>> {
      KILN_TRY(check_limit(limit, file));
      if (system_.unlink(AT_FDCWD, file.c_str()) == 0 || errno == ENOENT) return Result<void>();
      return folder_error_unless_stale<void>("remove", file);
    });
  }

  Result<std::vector<std::string>> list(const std::string& folder, const CallLimit& limit) override {
    const std::filesystem::path path = root_ / folder;
    return until_not_stale<Names>(path, [&]() -> std::optional<Result<Names>> {
      KILN_TRY(check_limit(limit, path));
      Names names;
      const FileHandle handle = open_folder(path);
      if (!handle && errno == ENOENT) return names;
      if (!handle || system_.list(handle.get(), &names) != 0) return folder_error_unless_stale<Names>("list", path);
      // Temporary files, and those that NFS clients keep for open files, are no objects.
      std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
      return names;
    });
  }

 private:
  using Object = std::optional<std::vector<std::byte>>;
  using Names = std::vector<std::string>;

  std::optional<Result<Object>> read(const std::filesystem::path& file, const CallLimit& limit) const;
  std::optional<Result<void>> write(const std::filesystem::path& file, std::span<const std::byte> bytes,
                                    const CallLimit& limit) const;
  FileHandle open_folder(const std::filesystem::path& path) const {
    return FileHandle(system_.open(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0), system_);
  }
  /// Creates the folder and its parents as far as they are missing; false with errno if that fails.
  bool make_folders(const std::filesystem::path& path) const;

  const std::filesystem::path root_;
  const FileSystem& system_ = FileSystem::system();
};

std::optional<Result<FileStore::Object>> FileStore::read(const std::filesystem::path& file,
                                                         const CallLimit& limit) const {
  KILN_TRY(check_limit(limit, file));
  // Opening a FIFO would wait for its writer.
  const FileHandle handle(
      system_.open(AT_FDCWD, file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0), system_);
  if (!handle && errno == ENOENT) return Object();
  if (!handle && errno == ELOOP)
    return Error(ErrorCode::io, fmt::format("cannot read {}: it is a symbolic link", file.string()));
  struct stat status {};
  if (!handle || system_.status(handle.get(), &status) != 0) return folder_error_unless_stale<Object>("open", file);
  if (!S_ISREG(status.st_mode))
    return Error(ErrorCode::io, fmt::format("cannot read {}: it is not a regular file", file.string()));
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > max_object_bytes)
    return Error(ErrorCode::io, fmt::format("cannot read {}: it has {} bytes, and {} are allowed", file.string(),
                                            size, max_object_bytes));
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  std::size_t have = 0;
  while (have < bytes.size()) {
    if (have > 0) KILN_TRY(check_limit(limit, file));
    const std::size_t wanted = std::min(bytes.size() - have, bytes_between_checks);
    const ssize_t got = system_.read(handle.get(), bytes.data() + have, wanted);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return folder_error_unless_stale<Object>("read", file);
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return Object(std::move(bytes));
}

std::optional<Result<void>> FileStore::write(const std::filesystem::path& file, std::span<const std::byte> bytes,
                                             const CallLimit& limit) const {
  const std::filesystem::path path = file.parent_path();
  KILN_TRY(check_limit(limit, file));
  FileHandle folder = open_folder(path);
  if (!folder && errno == ENOENT) {
    if (!make_folders(path)) return folder_error_unless_stale<void>("create the folder", path);
    folder = open_folder(path);
  }
  if (!folder) return folder_error_unless_stale<void>("open the folder", path);
  UnfinishedFile unfinished(folder.get(), system_);
  if (!unfinished.exists()) return folder_error_unless_stale<void>("create a file in", path);
  for (auto rest = bytes; !rest.empty();) {
    if (rest.size() < bytes.size()) KILN_TRY(check_limit(limit, file));
    const auto part = rest.first(std::min(rest.size(), bytes_between_checks));
    if (!unfinished.write(part)) return folder_error_unless_stale<void>("write", file);
    rest = rest.subspan(part.size());
  }
  if (!unfinished.close_and_rename(file.filename())) return folder_error_unless_stale<void>("write", file);
  return Result<void>();
}

bool FileStore::make_folders(const std::filesystem::path& path) const {
  // Another machine may create them at the same time.
  if (system_.make_folder(path.c_str(), 0777) == 0 || errno == EEXIST) return true;
  if (errno != ENOENT || !path.has_relative_path()) return false;
  return make_folders(path.parent_path()) && (system_.make_folder(path.c_str(), 0777) == 0 || errno == EEXIST);
}

}  // namespace

Result<std::unique_ptr<ObjectStore>> make_file_store(std::filesystem::path root) {
  if (!root.is_absolute())
    return Error(ErrorCode::invalid_request,
                 fmt::format("the folder {} of a shared store is not an absolute path", root.string()));
  return std::unique_ptr<ObjectStore>(std::make_unique<FileStore>(std::move(root)));
}

bool is_trusted_folder(const std::filesystem::path& root) { return base::Folder::open(root, false).ok(); }

}  // namespace kiln::store
