#include "base/file.hpp"

#include <cerrno>
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <fmt/format.h>

namespace kiln::base {
namespace {

constexpr std::string_view temporary_prefix = ".tmp-";

bool trusted_owner(const struct stat& status) { return status.st_uid == geteuid() || status.st_uid == 0; }

/// Unlinks the temporary file unless the rename took it away: a writer that fails leaves nothing behind.
class TemporaryFile {
 public:
  explicit TemporaryFile(int folder) : folder_(folder) {
    // Random, since processes in containers share folders and numbers alike.
    std::uint64_t random[2] = {};
    static_cast<void>(!getrandom(random, sizeof random, 0));
    name_ = fmt::format("{}{:016x}{:016x}", temporary_prefix, random[0], random[1]);
    handle_ =
        FileHandle(openat(folder_, name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  }
  ~TemporaryFile() {
    if (handle_ && !renamed_) unlinkat(folder_, name_.c_str(), 0);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  bool is_open() const noexcept { return static_cast<bool>(handle_); }

  bool write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(handle_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return true;
  }

  bool rename_to(const std::string& name) {
    renamed_ = renameat(folder_, name_.c_str(), folder_, name.c_str()) == 0;
    return renamed_;
  }

 private:
  int folder_;
  std::string name_;
  FileHandle handle_;
  bool renamed_ = false;
};

}  // namespace

FileHandle::~FileHandle() {
  if (descriptor_ >= 0) close(descriptor_);
}

Error system_error(const std::string& what, const std::filesystem::path& path) {
  return Error(ErrorCode::io, fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(errno)));
}

Result<Folder> Folder::open(const std::filesystem::path& path, bool create) {
  if (create) {
    std::filesystem::path so_far;
    for (const auto& part : path) {
      so_far /= part;
      if (mkdir(so_far.c_str(), 0700) == 0) continue;
      const int reason = errno;
      // A parent that exists may refuse mkdir for any reason (read-only, no permission) and be fine all the same.
      if (struct stat status{}; stat(so_far.c_str(), &status) == 0) continue;
      errno = reason;
      return system_error("make the folder", so_far);
    }
  }
  FileHandle handle(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!handle) return system_error("open the folder", path);
  struct stat status {};
  if (fstat(handle.get(), &status) != 0) return system_error("examine the folder", path);
  if (!trusted_owner(status))
    return Error(ErrorCode::io, fmt::format("the folder {} belongs to another user (uid {}); use a folder of your "
                                            "own",
                                            path.string(), status.st_uid));
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return Error(ErrorCode::io, fmt::format("the folder {} can be written by other users; make it safe with "
                                            "'chmod go-w'",
                                            path.string()));
  return Folder(path, std::move(handle));
}

bool Folder::exists() const noexcept {
  struct stat status {};
  return fstat(descriptor(), &status) == 0 && status.st_nlink > 0;
}

Result<std::optional<FileContents>> Folder::read(const std::string& name, std::uint64_t max_bytes) const {
  const FileHandle file(
      openat(descriptor(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (!file) {
    if (errno == ENOENT) return std::optional<FileContents>{};
    return system_error("open", path_ / name);
  }
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return system_error("examine", path_ / name);
  if (!S_ISREG(status.st_mode))
    return Error(ErrorCode::damaged, fmt::format("{} is no regular file", (path_ / name).string()));
  if (!trusted_owner(status))
    return Error(ErrorCode::damaged, fmt::format("{} belongs to another user", (path_ / name).string()));
  if (static_cast<std::uint64_t>(status.st_size) > max_bytes)
    return Error(ErrorCode::damaged,
                 fmt::format("{} has {} bytes, more than any entry", (path_ / name).string(), status.st_size));
  std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::read(file.get(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("read", path_ / name);
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return std::optional(FileContents{std::move(bytes), status.st_mtime});
}

Result<void> Folder::replace(const std::string& name, std::span<const std::byte> bytes) const {
  TemporaryFile file(descriptor());
  if (!file.is_open() || !file.write(bytes) || !file.rename_to(name)) return system_error("write", path_ / name);
  return {};
}

Result<bool> Folder::remove(const std::string& name) const {
  if (unlinkat(descriptor(), name.c_str(), 0) == 0) return true;
  if (errno == ENOENT) return false;
  return system_error("remove", path_ / name);
}

Result<FileHandle> Folder::open_lock_file(const std::string& name) const {
  FileHandle file(openat(descriptor(), name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!file) return system_error("open", path_ / name);
  return file;
}

Result<std::vector<std::string>> Folder::names() const {
  const int descriptor = openat(this->descriptor(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* stream = descriptor < 0 ? nullptr : fdopendir(descriptor);
  if (stream == nullptr) {
    if (descriptor >= 0) close(descriptor);
    return system_error("list", path_);
  }
  std::vector<std::string> names;
  while (const dirent* entry = readdir(stream)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  closedir(stream);
  return names;
}

std::optional<struct stat> Folder::status(const std::string& name) const {
  struct stat status {};
  if (fstatat(descriptor(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  return status;
}

Result<void> Folder::touch(const std::string& name) const {
  if (utimensat(descriptor(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW) != 0)
    return system_error("touch", path_ / name);
  return {};
}

bool Folder::is_temporary(const std::string& name) {
  // People, too, like names that begin with ".tmp-"; ours go on with 32 digits.
  return name.starts_with(temporary_prefix) && name.size() == temporary_prefix.size() + 32 &&
         name.find_first_not_of("0123456789abcdef", temporary_prefix.size()) == std::string::npos;
}

}  // namespace kiln::base
