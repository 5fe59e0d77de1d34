#include "store/remote/secret_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/try.hpp"

namespace kiln::store {
namespace {

constexpr std::size_t max_secret_bytes = 64 << 10;

/// An open descriptor; closed on destruction.
struct OpenFile {
  explicit OpenFile(const std::string& path)
      // Opening a FIFO without O_NONBLOCK waits for its writer.
      : descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {}
  ~OpenFile() {
    if (descriptor >= 0) ::close(descriptor);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  const int descriptor;
};

Result<std::string> read_secret(const std::string& path) {
  const auto unusable = [&path](std::string_view why) {
    return Error(ErrorCode::io, fmt::format("cannot use the secret in {}: {}", path, why));
  };
  auto read = read_small_file(path, max_secret_bytes);
  if (!read) return unusable(read.error().message());
  std::string text = *std::move(read);
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

Result<std::string> read_small_file(const std::string& path, std::size_t max_bytes) {
  const auto unusable = [](std::string why) { return Error(ErrorCode::io, std::move(why)); };
  const OpenFile file(path);
  struct stat status {};
  if (file.descriptor < 0 || ::fstat(file.descriptor, &status) != 0) return unusable(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return unusable("it is not a file");
  std::string text(max_bytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.descriptor, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unusable(std::strerror(errno));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > max_bytes) return unusable(fmt::format("it is longer than {} KiB", max_bytes >> 10));
  text.resize(size);
  return text;
}

Result<std::unique_ptr<SecretFile>> SecretFile::open(const std::string& path) {
  std::string secret = KILN_TRY(read_secret(path));
  return std::make_unique<SecretFile>([path] { return read_secret(path); }, std::move(secret));
}

}  // namespace kiln::store
