#include "base/file_lock.hpp"

#include <algorithm>
#include <cerrno>
#include <thread>

#include <fcntl.h>

namespace kiln::base {
namespace {

struct flock request_for(std::uint64_t byte, short type) {
  struct flock request {};
  request.l_type = type;
  request.l_whence = SEEK_SET;
  // The last byte a file can have is one before the largest offset.
  request.l_start = static_cast<off_t>(byte % 0x7fff'ffff'ffff'ffffU);
  request.l_len = 1;
  return request;
}

// Locks of an open file description, not of the process: two caches of one process exclude each other too, and
// closing some other descriptor of the file drops nothing.
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
    // The kernel offers no timed wait for these locks.
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
