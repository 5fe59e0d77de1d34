#include "store/part_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/try.hpp"
#include "store/bundle_layout.hpp"
#include "store/signature_block.hpp"

namespace kiln::store {
namespace {

constexpr std::size_t bytes_at_once = std::size_t{1} << 20;

/// Fails if a bundle with this header cannot have so many bytes.
Result<void> check_size(const BundleHeader& header, std::uint64_t size) {
  // Signatures follow the index. Offsets and sizes of a header are so small that their sum does not overflow.
  const std::uint64_t least = header.index_offset + header.index_bytes + bundle_signatures_begin_bytes;
  if (size >= least && size - least <= max_signature_bytes) return {};
  return Error(
      ErrorCode::damaged,
      fmt::format("its header is for a bundle of {} bytes and its signatures, and it has {} bytes", least, size));
}

}  // namespace

bool is_interrupted(int descriptor) {
  pollfd wait = {descriptor, POLLIN, 0};
  return descriptor >= 0 && ::poll(&wait, 1, 0) > 0;
}

Result<std::uint64_t> read_in_parts(const base::FileHandle& file, const std::filesystem::path& path,
                                    std::uint64_t size, int interrupted,
                                    const std::function<void(std::span<const std::byte>)>& receive) {
  std::vector<std::byte> part(static_cast<std::size_t>(std::min<std::uint64_t>(bytes_at_once, size)));
  std::uint64_t done = 0;
  while (done < size) {
    if (is_interrupted(interrupted))
      return Error(ErrorCode::cancelled, fmt::format("the reading of {} was interrupted", path.string()));
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(part.size(), size - done));
    const ssize_t got = ::pread(file.get(), part.data(), wanted, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::system_error("read", path);
    if (got == 0) break;
    receive(std::span(part).first(static_cast<std::size_t>(got)));
    done += static_cast<std::uint64_t>(got);
  }
  return done;
}

Result<std::unique_ptr<PartFile>> PartFile::open(const std::filesystem::path& file) {
  std::filesystem::path path = file;
  path += ".part";
  const auto unusable = [&path](std::string_view why) {
    return Error(ErrorCode::io, fmt::format("cannot write {}: {}", path.string(), why));
  };
  constexpr int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  // Another process may rename or remove the file before it is locked.
  for (int attempt = 0; attempt < 10; ++attempt) {
    base::FileHandle handle(::open(path.c_str(), flags, 0666));
    if (!handle && errno == ELOOP) return unusable("it is a symbolic link");
    if (!handle) return base::system_error("create", path);
    struct stat opened {};
    if (::fstat(handle.get(), &opened) != 0) return base::system_error("examine", path);
    if (!S_ISREG(opened.st_mode)) return unusable("it is not a file");
    if (opened.st_uid != ::geteuid()) return unusable("it belongs to another user; remove it");
    auto lock = base::FileLock::acquire(handle, 0, std::chrono::milliseconds(0));
    if (!lock) return unusable("another process pulls into it, or its file system has no locks");
    struct stat now {};
    if (::lstat(path.c_str(), &now) == 0 && now.st_ino == opened.st_ino && now.st_dev == opened.st_dev)
      return std::unique_ptr<PartFile>(new PartFile(file, std::move(path), std::move(handle), *std::move(lock)));
  }
  return unusable("other processes pull into it");
}

Result<void> PartFile::resume(std::uint64_t most, int interrupted) {
  struct stat status {};
  if (::fstat(handle_.get(), &status) != 0) return base::system_error("examine", path_);
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size == 0 || size > most) return restart();
  received_ = KILN_TRY(read_in_parts(handle_, path_, size, interrupted, [this](auto bytes) { hash_.add(bytes); }));
  if (::lseek(handle_.get(), static_cast<off_t>(received_), SEEK_SET) < 0)
    return base::system_error("write", path_);
  return {};
}

Result<void> PartFile::expect_bundle(std::uint64_t size) {
  expected_ = size;
  if (received_ < bundle_header_bytes || !check_begin()) KILN_TRY(restart());
  struct statvfs system {};
  if (::fstatvfs(handle_.get(), &system) != 0) return base::system_error("examine", path_);
  const std::uint64_t missing = size - std::min(size, received_);
  const std::uint64_t block = system.f_frsize;
  // Not as a product, which could overflow.
  if (missing / std::max<std::uint64_t>(1, block) < system.f_bavail) return {};
  return Error(ErrorCode::io, fmt::format("cannot write {}: it needs {} more bytes, and only {} bytes are free",
                                          path_.string(), missing, system.f_bavail * block));
}

Result<void> PartFile::check_begin() {
  if (expected_ == 0 || received_ < std::min<std::uint64_t>(bundle_header_bytes, expected_)) return {};
  std::array<std::byte, bundle_header_bytes> begin{};
  const ssize_t got = ::pread(handle_.get(), begin.data(), begin.size(), 0);
  if (got < 0) return base::system_error("read", path_);
  const auto header = BundleHeader::from_bytes(std::span(begin).first(static_cast<std::size_t>(got)));
  return header ? check_size(*header, expected_) : header.error();
}

Result<void> PartFile::restart() {
  hash_ = base::Sha256();
  received_ = 0;
  if (::ftruncate(handle_.get(), 0) != 0 || ::lseek(handle_.get(), 0, SEEK_SET) < 0)
    return base::system_error("write", path_);
  return {};
}

Result<void> PartFile::write(std::span<const std::byte> bytes) {
  if (!base::write_all(handle_, bytes)) return base::system_error("write", path_);
  hash_.add(bytes);
  const bool is_begin = received_ < bundle_header_bytes;
  received_ += bytes.size();
  if (is_begin) {
    if (auto sound = check_begin(); !sound) {
      if (sound.error().code() != ErrorCode::io) refused_ = sound.error();
      return sound;
    }
  }
  if (on_write_) on_write_(received_);
  return {};
}

Result<void> PartFile::rename() {
  if (::fsync(handle_.get()) != 0) return base::system_error("write", path_);
  if (::rename(path_.c_str(), file_.c_str()) != 0) return base::system_error("replace", file_);
  return {};
}

void PartFile::remove() noexcept { static_cast<void>(::unlink(path_.c_str())); }

void PartFile::remove_if_empty() noexcept {
  struct stat status {};
  if (::fstat(handle_.get(), &status) == 0 && status.st_size == 0) remove();
}

}  // namespace kiln::store
