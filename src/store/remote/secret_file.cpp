#include "store/remote/secret_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/try.hpp"

namespace kiln::store {
namespace {

constexpr std::size_t max_secret_bytes = 64 << 10;

/// An open descriptor; closed on destruction.
struct OpenSecret {
  explicit OpenSecret(const std::string& path)
      // Opening a FIFO without O_NONBLOCK waits for its writer.
      : descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {}
  ~OpenSecret() {
    if (descriptor >= 0) ::close(descriptor);
  }
  OpenSecret(const OpenSecret&) = delete;
  OpenSecret& operator=(const OpenSecret&) = delete;

  const int descriptor;
};

Result<std::string> read_secret(const std::string& path) {
  const auto unusable = [&path](std::string_view why) {
    return Error(ErrorCode::io, fmt::format("cannot use the secret in {}: {}", path, why));
  };
  const OpenSecret file(path);
  struct stat status {};
  if (file.descriptor < 0 || ::fstat(file.descriptor, &status) != 0) return unusable(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return unusable("it is not a file");
  std::string text(max_secret_bytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.descriptor, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unusable(std::strerror(errno));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > max_secret_bytes) return unusable("it is longer than 64 KiB");
  text.resize(size);
  constexpr std::string_view spaces = " \t\r\n\v\f";
  text.erase(text.find_last_not_of(spaces) + 1);
  text.erase(0, std::min(text.find_first_not_of(spaces), text.size()));
  if (text.empty()) return unusable("it is empty");
  // In HTTP, a line break would begin another header.
  if (std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }))
    return unusable("it has more than one line, or control characters");
  return text;
}

}  // namespace

Result<std::unique_ptr<SecretFile>> SecretFile::open(const std::string& path) {
  std::string secret = KILN_TRY(read_secret(path));
  return std::unique_ptr<SecretFile>(new SecretFile(path, std::move(secret)));
}

Result<std::string> SecretFile::read() {
  {
    const base::MutexLock lock(mutex_);
    if (is_reading_ || Clock::now() < next_read_) return last_;
    is_reading_ = true;
  }
  Result<std::string> now = Error(ErrorCode::io, "there is no memory to read " + path_);
  try {
    now = read_secret(path_);
  } catch (const std::bad_alloc&) {
    // Tried again soon.
  }
  const base::MutexLock lock(mutex_);
  is_reading_ = false;
  next_read_ = Clock::now() + lifetime;
  return last_ = std::move(now);
}

}  // namespace kiln::store
