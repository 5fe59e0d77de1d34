#include "base/file_system.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <new>
#include <string_view>

#include <dirent.h>
#include <unistd.h>

namespace kiln::base {

int FileSystem::make_folder(const char* path, mode_t mode) const { return ::mkdir(path, mode); }

int FileSystem::open(int folder, const char* name, int flags, mode_t mode) const {
  return ::openat(folder, name, flags, mode);
}

int FileSystem::close(int file) const { return ::close(file); }
ssize_t FileSystem::read(int file, void* bytes, std::size_t count) const { return ::read(file, bytes, count); }
ssize_t FileSystem::write(int file, const void* bytes, std::size_t count) const {
  return ::write(file, bytes, count);
}
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
  const int again = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
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

const FileSystem& FileSystem::system() noexcept {
  // Never destroyed: a cache in a static variable saves after everything else.
  alignas(FileSystem) static std::array<std::byte, sizeof(FileSystem)> place;
  static const FileSystem& system = *new (place.data()) FileSystem;
  return system;
}

}  // namespace kiln::base
