#include "base/file_system.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include <dirent.h>
#include <unistd.h>

#include "base/process.hpp"

namespace kiln::base {
namespace {

// Set when openat() returned 0, 1 or 2: a standard stream is closed.
std::atomic<bool> standard_stream_closed{false};

bool is_standard_stream(int file) { return file >= 0 && file <= STDERR_FILENO; }

/// Duplicates a file to a descriptor above the standard streams' and closes the original.
int moved_up(int low) {
  const int file = ::fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int reason = errno;
  ::close(low);
  errno = reason;
  return file;
}

/// openat() while placeholders occupy the descriptors of closed standard streams, so that the file cannot get one.
int open_beside_plugs(int folder, const char* name, int flags, mode_t mode) {
  // Serialised: a thread would mistake the placeholders of another thread for open streams, and its file could then
  // get a descriptor that the other thread frees. Never destroyed, because a cache in a static variable saves
  // during exit.
  static ForkMutex& plugs_mutex = *std::make_unique<ForkMutex>(ForkMutex::Order::inner).release();
  const MutexLock lock(plugs_mutex);
  std::array<int, 3> plugs{};
  std::size_t count = 0;
  for (;;) {
    // With O_PATH, a write to the stream fails with EBADF, as on a closed descriptor.
    const int plug = ::open("/", O_PATH | O_CLOEXEC);
    if (is_standard_stream(plug) && count < plugs.size()) {
      plugs[count++] = plug;
      continue;
    }
    if (plug >= 0) ::close(plug);
    break;
  }
  if (count == 0) standard_stream_closed.store(false, std::memory_order_relaxed);
  int file = ::openat(folder, name, flags, mode);
  if (is_standard_stream(file)) file = moved_up(file);
  const int reason = errno;
  for (std::size_t i = 0; i < count; ++i) ::close(plugs[i]);
  errno = reason;
  return file;
}

/// openat() that never returns 0, 1 or 2: if a standard stream is closed, output to that stream would go into the
/// file. Closed streams are rare, so the first open detects one and moves its file to another descriptor; later
/// opens use placeholders. In a cache, the first file is the folder itself, which cannot be written to.
int open_above_standard_streams(int folder, const char* name, int flags, mode_t mode) {
  if (standard_stream_closed.load(std::memory_order_relaxed)) return open_beside_plugs(folder, name, flags, mode);
  const int file = ::openat(folder, name, flags, mode);
  if (!is_standard_stream(file)) return file;
  standard_stream_closed.store(true, std::memory_order_relaxed);
  return moved_up(file);
}

}  // namespace

int FileSystem::make_folder(int folder, const char* name, mode_t mode) const {
  return ::mkdirat(folder, name, mode);
}

int FileSystem::open(int folder, const char* name, int flags, mode_t mode) const {
  return open_above_standard_streams(folder, name, flags, mode);
}

int FileSystem::close(int file) const { return ::close(file); }
ssize_t FileSystem::read(int file, void* bytes, std::size_t count) const { return ::read(file, bytes, count); }
ssize_t FileSystem::read_at(int file, void* bytes, std::size_t count, off_t place) const {
  return ::pread(file, bytes, count, place);
}
ssize_t FileSystem::write(int file, const void* bytes, std::size_t count) const {
  return ::write(file, bytes, count);
}
int FileSystem::truncate(int file, off_t size) const { return ::ftruncate(file, size); }
int FileSystem::sync(int file) const { return ::fsync(file); }

int FileSystem::rename(int folder, const char* from, const char* to) const {
  return ::renameat(folder, from, folder, to);
}

int FileSystem::unlink(int folder, const char* name) const { return ::unlinkat(folder, name, 0); }
int FileSystem::status(int file, struct stat* status) const { return ::fstat(file, status); }

int FileSystem::status(int folder, const char* name, struct stat* status) const {
  return ::fstatat(folder, name, status, AT_SYMLINK_NOFOLLOW);
}

int FileSystem::touch(int folder, const char* name) const {
  return ::utimensat(folder, name, nullptr, AT_SYMLINK_NOFOLLOW);
}

int FileSystem::lock(int file, int command, struct flock* request) const { return ::fcntl(file, command, request); }

int FileSystem::list(int folder, std::vector<std::string>* names) const {
  const int again = open_above_standard_streams(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  DIR* stream = again < 0 ? nullptr : ::fdopendir(again);
  if (stream == nullptr) {
    if (again >= 0) ::close(again);
    return -1;
  }
  errno = 0;
  while (const dirent* entry = ::readdir(stream)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names->emplace_back(name);
  }
  const int reason = errno;
  ::closedir(stream);
  errno = reason;
  return reason == 0 ? 0 : -1;
}

namespace {
thread_local constinit const FileSystem* in_place_of_the_system = nullptr;
}  // namespace

ScopedFileSystem::ScopedFileSystem(const FileSystem& system) noexcept
    : before_(std::exchange(in_place_of_the_system, &system)) {}

ScopedFileSystem::~ScopedFileSystem() { in_place_of_the_system = before_; }

const FileSystem& FileSystem::system() noexcept {
  if (in_place_of_the_system != nullptr) return *in_place_of_the_system;
  // Never destroyed: a cache in a static variable saves during exit.
  alignas(FileSystem) static std::array<std::byte, sizeof(FileSystem)> place;
  static const FileSystem& system = *new (place.data()) FileSystem;
  return system;
}

}  // namespace kiln::base
