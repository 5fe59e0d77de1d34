#include "base/file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/process.hpp"

namespace kiln::base {
namespace {

constexpr std::string_view temporary_prefix = ".tmp-";

/// A temporary file that is unlinked on destruction unless it was renamed, so that a failed write leaves no file.
class TemporaryFile {
 public:
  TemporaryFile(int folder, const FileSystem& system) : folder_(folder), system_(system) {
    // A cleanup may remove a file before it is locked; then another one is made.
    constexpr int most_tries = 100;
    for (int tries = 0; tries < most_tries && !make(); ++tries) continue;
  }
  ~TemporaryFile() {
    if (made_ && !renamed_) system_.unlink(folder_, name_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  bool write(std::span<const std::byte> bytes) { return made_ && write_all(handle_, bytes); }

  bool sync() { return system_.sync(handle_.get()) == 0; }
  /// The lock is kept until destruction, so that no cleanup removes the file before it is renamed.
  bool close() {
    if (!lock_handle_) lock_.reset();
    return handle_.close();
  }

  bool rename_to(const std::string& name) {
    renamed_ = system_.rename(folder_, name_.c_str(), name.c_str()) == 0;
    return renamed_;
  }

 private:
  /// False if a cleanup removed the file, or is about to.
  bool make() {
    lock_.reset();
    // Random, because processes in different containers can share a folder and have equal pids.
    std::uint64_t random[2] = {};
    static_cast<void>(!getrandom(random, sizeof random, 0));
    name_ = fmt::format("{}{:016x}{:016x}", temporary_prefix, random[0], random[1]);
    handle_ = FileHandle(
        system_.open(folder_, name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600), system_);
    made_ = static_cast<bool>(handle_);
    if (!made_) return true;
    // The lock shows cleanups that the writer is alive. If the file system has no locks, they use the file's age. A
    // second descriptor of the file keeps the lock after close().
    lock_handle_ = FileHandle(::fcntl(handle_.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1), system_);
    const FileHandle& locked = lock_handle_ ? lock_handle_ : handle_;
    lock_ = FileLock::acquire(locked, 0, {});
    if (!lock_) return FileLock::is_held(locked, 0) != true;
    struct stat status {};
    return system_.status(locked.get(), &status) != 0 || status.st_nlink > 0;
  }

  int folder_;
  const FileSystem& system_;
  std::string name_;
  FileHandle handle_;
  FileHandle lock_handle_;
  std::optional<FileLock> lock_;
  bool made_ = false;
  bool renamed_ = false;
};

}  // namespace

FileHandle::~FileHandle() { close(); }

bool FileHandle::close() noexcept {
  const int descriptor = std::exchange(descriptor_, -1);
  // Linux closes the descriptor even if close() is interrupted.
  return descriptor < 0 || system_->close(descriptor) == 0 || errno == EINTR;
}

bool write_all(const FileHandle& file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = file.system().write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

Error system_error(const std::string& what, const std::filesystem::path& path) {
  return Error(ErrorCode::io, fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(errno)));
}

Result<void> write_file(const std::filesystem::path& path, std::string_view text) {
  FileHandle file(
      FileSystem::system().open(AT_FDCWD, path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file || !write_all(file, std::as_bytes(std::span(text))) || !file.close())
    return system_error("write", path);
  return {};
}

bool is_plain(const std::filesystem::path& path) {
  return std::ranges::none_of(path.native(), [](unsigned char c) {
    return c <= ' ' || c == 0x7f ||
           std::string_view("\"'\\,;$`").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

Result<ScratchFolder> ScratchFolder::create() {
  const char* given = environment("TMPDIR");
  std::error_code error;
  std::filesystem::path above =
      given != nullptr && *given != '\0' ? std::filesystem::absolute(given, error) : "/tmp";
  if (error || !is_plain(above)) above = "/tmp";
  constexpr int most_tries = 100;
  std::string name;
  for (int tries = 0; tries < most_tries; ++tries) {
    std::array<unsigned char, random_characters> random = {};
    if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) break;
    name = above / "kiln-";
    for (const unsigned char number : random) name += static_cast<char>('d' + number % ('z' - 'd' + 1));
    if (::mkdir(name.c_str(), S_IRWXU) == 0) return ScratchFolder(std::filesystem::path(name));
    if (errno != EEXIST) break;
  }
  return system_error("create the folder", name);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Result<Folder> Folder::open(const std::filesystem::path& path, bool create, const FileSystem& system) {
  std::filesystem::path made_in;
  if (create) {
    std::filesystem::path so_far;
    for (const auto& part : path) {
      const std::filesystem::path above = so_far;
      so_far /= part;
      if (system.make_folder(AT_FDCWD, so_far.c_str(), 0700) == 0) {
        if (made_in.empty()) made_in = above.empty() ? "." : above;
        continue;
      }
      const int reason = errno;
      // mkdir may fail for an existing parent with other errors than EEXIST (read-only, no permission).
      if (struct stat status{}; stat(so_far.c_str(), &status) == 0) continue;
      errno = reason;
      return system_error("create the folder", so_far);
    }
  }
  FileHandle handle(system.open(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0), system);
  if (!handle) return system_error("open the folder", path);
  struct stat status {};
  if (system.status(handle.get(), &status) != 0) return system_error("examine the folder", path);
  if (const auto why = why_not_trusted(status, path))
    return Error(ErrorCode::io, fmt::format("the folder {} is not trusted, because {}", path.string(), *why));
  return Folder(path, std::move(made_in), std::move(handle));
}

bool Folder::exists() const noexcept {
  struct stat status {};
  return system().status(descriptor(), &status) == 0 && status.st_nlink > 0;
}

Result<std::optional<FileContents>> Folder::read(const std::string& name, std::uint64_t max_bytes) const {
  const FileHandle file(
      system().open(descriptor(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0),
      system());
  if (!file) {
    if (errno == ENOENT) return std::optional<FileContents>{};
    if (errno == ELOOP)
      return Error(ErrorCode::damaged, fmt::format("{} is a symbolic link", (path_ / name).string()));
    return system_error("open", path_ / name);
  }
  struct stat status {};
  if (system().status(file.get(), &status) != 0) return system_error("examine", path_ / name);
  if (!S_ISREG(status.st_mode))
    return Error(ErrorCode::damaged, fmt::format("{} is not a regular file", (path_ / name).string()));
  if (!is_trusted_owner(status))
    return Error(ErrorCode::damaged, fmt::format("{} belongs to another user", (path_ / name).string()));
  if (static_cast<std::uint64_t>(status.st_size) > max_bytes)
    return Error(ErrorCode::damaged, fmt::format("{} has {} bytes, more than this file may have",
                                                 (path_ / name).string(), status.st_size));
  std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = system().read(file.get(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("read", path_ / name);
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return std::optional(FileContents{std::move(bytes), status.st_mtime});
}

Result<void> Folder::replace(const std::string& name, std::span<const std::byte> bytes,
                             Durability durability) const {
  TemporaryFile file(descriptor(), system());
  if (!file.write(bytes) || (durability != Durability::none && !file.sync()) || !file.close() ||
      !file.rename_to(name))
    return system_error("write", path_ / name);
  // Some file systems reject fsync of a folder with EINVAL.
  if (durability == Durability::fsync && system().sync(descriptor()) != 0 && errno != EINVAL)
    return system_error("sync", path_);
  return {};
}

bool Folder::rename(const std::string& from, const std::string& to) const {
  return system().rename(descriptor(), from.c_str(), to.c_str()) == 0;
}

Result<bool> Folder::remove(const std::string& name) const {
  if (system().unlink(descriptor(), name.c_str()) == 0) return true;
  if (errno == ENOENT) return false;
  return system_error("remove", path_ / name);
}

Result<FileHandle> Folder::open_lock_file(const std::string& name) const {
  FileHandle file(
      system().open(descriptor(), name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600),
      system());
  if (!file) return system_error("open", path_ / name);
  return file;
}

Result<std::vector<std::string>> Folder::names() const {
  std::vector<std::string> names;
  if (system().list(descriptor(), &names) != 0) return system_error("list", path_);
  return names;
}

std::optional<struct stat> Folder::status(const std::string& name) const {
  struct stat status {};
  if (system().status(descriptor(), name.c_str(), &status) != 0) return std::nullopt;
  return status;
}

Result<void> Folder::touch(const std::string& name) const {
  if (system().touch(descriptor(), name.c_str()) != 0) return system_error("touch", path_ / name);
  return {};
}

void Folder::sync_name() const {
  for (std::filesystem::path above = path_.parent_path();; above = above.parent_path()) {
    const std::filesystem::path name = above.empty() ? "." : above;
    const FileHandle folder(system().open(AT_FDCWD, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0), system());
    if (folder) static_cast<void>(system().sync(folder.get()));
    if (made_in_.empty() || name == made_in_ || above == above.parent_path()) return;
  }
}

namespace {

constexpr int locking_flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

/// For file systems without locks.
bool is_old(const std::optional<struct stat>& status) {
  constexpr std::int64_t an_hour = 3600;
  return status && std::time(nullptr) - status->st_mtime > an_hour;
}

}  // namespace

bool Folder::is_abandoned(const std::string& name) const {
  const FileHandle file(system().open(descriptor(), name.c_str(), locking_flags, 0), system());
  if (file)
    if (const auto held = FileLock::is_held(file, 0)) return !*held;
  return is_old(status(name));
}

Result<bool> Folder::remove_abandoned(const std::string& name) const {
  const FileHandle file(system().open(descriptor(), name.c_str(), locking_flags, 0), system());
  std::optional<FileLock> lock;
  if (file) {
    lock = FileLock::acquire(file, 0, {});
    if (!lock && FileLock::is_held(file, 0) == true) return false;
  }
  // With the lock, the writer is dead, or has not locked the file yet; it then sees that the file is removed.
  if (!lock && !is_old(status(name))) return false;
  return remove(name);
}

bool Folder::is_temporary(const std::string& name) {
  // Users may also choose names that begin with ".tmp-"; Kiln's have 32 hexadecimal digits after it.
  return name.starts_with(temporary_prefix) && name.size() == temporary_prefix.size() + 32 &&
         name.find_first_not_of("0123456789abcdef", temporary_prefix.size()) == std::string::npos;
}

namespace {

struct flock request_for(std::uint64_t byte, short type) {
  struct flock request {};
  request.l_type = type;
  request.l_whence = SEEK_SET;
  // A file's last byte is at the largest offset minus one.
  request.l_start = static_cast<off_t>(byte % 0x7fff'ffff'ffff'ffffU);
  request.l_len = 1;
  return request;
}

// Uses locks of the open file description, not of the process: they also exclude another cache in this process, and
// closing another descriptor of the file does not release them.
bool set_lock(const FileSystem& system, int descriptor, std::uint64_t byte, short type) {
  struct flock request = request_for(byte, type);
  int result = 0;
  do {
    result = system.lock(descriptor, F_OFD_SETLK, &request);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

}  // namespace

std::optional<FileLock> FileLock::acquire(const FileHandle& file, std::uint64_t byte,
                                          std::chrono::milliseconds timeout) {
  using namespace std::chrono_literals;
  const auto deadline = std::chrono::steady_clock::now() + std::min<std::chrono::milliseconds>(timeout, 24h * 365);
  auto pause = std::chrono::microseconds(500);
  for (;;) {
    if (set_lock(file.system(), file.get(), byte, F_WRLCK)) return FileLock(file, byte);
    const bool busy = errno == EAGAIN;
    if (!busy || std::chrono::steady_clock::now() + pause > deadline) return std::nullopt;
    // The kernel has no timed wait for these locks.
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::microseconds>(pause * 2, 10ms);
  }
}

std::optional<bool> FileLock::is_held(const FileHandle& file, std::uint64_t byte) {
  struct flock request = request_for(byte, F_WRLCK);
  if (file.system().lock(file.get(), F_OFD_GETLK, &request) != 0) return std::nullopt;
  return request.l_type != F_UNLCK;
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) set_lock(*system_, descriptor_, byte_, F_UNLCK);
}

}  // namespace kiln::base
