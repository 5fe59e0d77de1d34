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

#include "base/file_trust.hpp"
#include "base/text.hpp"
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
  const auto read = read_small_file(path, max_secret_bytes, FileAccess::any);
  if (!read) return unusable(read.error().message());
  if (!*read) return unusable("there is no such file");
  std::string text(base::trimmed(**read));
  if (text.empty()) return unusable("it is empty");
  // In HTTP, a line break would begin another header.
  if (std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }))
    return unusable("it has more than one line, or control characters");
  return text;
}

}  // namespace

Result<std::optional<std::string>> read_small_file(const std::string& path, std::size_t max_bytes,
                                                   FileAccess access) {
  const auto unusable = [](std::string why) { return Error(ErrorCode::io, std::move(why)); };
  const OpenFile file(path);
  struct stat status {};
  if (file.descriptor < 0 && (errno == ENOENT || errno == ENOTDIR)) return std::optional<std::string>();
  if (file.descriptor < 0 || ::fstat(file.descriptor, &status) != 0) return unusable(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return unusable("it is not a file");
  if (access == FileAccess::trusted)
    if (auto why = base::why_not_trusted(status, path)) return unusable(*std::move(why));
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
  return std::optional(std::move(text));
}

Result<std::unique_ptr<SecretFile>> SecretFile::open(const std::string& path) {
  std::string secret = KILN_TRY(read_secret(path));
  return std::make_unique<SecretFile>([path] { return read_secret(path); }, std::move(secret));
}

}  // namespace kiln::store
