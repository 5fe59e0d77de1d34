#include "key/file_index.hpp"

#include <cerrno>
#include <utility>

#include <fcntl.h>

#include <fmt/format.h>

#include "base/file.hpp"
#include "base/mutex.hpp"
#include "base/sha256.hpp"
#include "base/try.hpp"

namespace kiln::key {
namespace {

// A CUDA toolkit has some 5,000 headers.
constexpr std::size_t max_indexed_files = 32'768;

std::int64_t nanoseconds(const struct timespec& time) noexcept {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// Whether the error of a system call means that there is no file for a compiler at a path.
bool means_absent(int error) noexcept {
  // ENXIO: a socket.
  return error == ENOENT || error == ENOTDIR || error == ENXIO || error == ENAMETOOLONG || error == ELOOP ||
         error == EINVAL;
}

/// Whether it means that a file exists, but not for this user. Compilers of this process cannot read it either.
bool means_unreadable(int error) noexcept { return error == EACCES || error == EPERM; }

struct OpenedFile {
  /// Empty if this process may not read the file.
  base::FileHandle handle;
  FileSignature signature;
};

Result<std::optional<OpenedFile>> open_regular(const std::string& path) {
  const base::FileSystem& system = base::FileSystem::system();
  // Without O_NONBLOCK, a FIFO would block until it has a writer.
  base::FileHandle handle(system.open(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0),
                          system);
  if (!handle) {
    // The file may have vanished since it was found.
    if (means_absent(errno)) return std::optional<OpenedFile>{};
    if (means_unreadable(errno)) return std::optional<OpenedFile>(std::in_place);
    return base::system_error("read", path);
  }
  struct stat status {};
  if (system.status(handle.get(), &status) != 0) return base::system_error("read", path);
  if (!S_ISREG(status.st_mode)) return std::optional<OpenedFile>{};
  if (static_cast<std::uint64_t>(status.st_size) > FileIndex::max_file_bytes)
    return Error(ErrorCode::invalid_request, fmt::format("{} has {} bytes; the limit for an included file is {}",
                                                         path, status.st_size, FileIndex::max_file_bytes));
  return std::optional(OpenedFile{std::move(handle), FileSignature::of(status)});
}

Result<std::string> read_all(const OpenedFile& file, const std::string& path) {
  // One byte more than expected, to find the end with one call.
  std::string text(file.signature.bytes + 1, '\0');
  std::size_t filled = 0;
  for (;;) {
    const ssize_t got = file.handle.system().read(file.handle.get(), text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::system_error("read", path);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
    if (filled > FileIndex::max_file_bytes)
      return Error(ErrorCode::invalid_request, fmt::format("{} grows while it is read", path));
    if (filled == text.size()) text.resize(2 * filled);
  }
  text.resize(filled);
  return text;
}

}  // namespace

FileSignature FileSignature::of(const struct stat& status) noexcept {
  return {status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size), nanoseconds(status.st_mtim),
          nanoseconds(status.st_ctim)};
}

bool FileSignature::was_settled(std::chrono::system_clock::time_point now) const noexcept {
  const auto then = std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch()).count() -
                    std::int64_t{2'000'000'000};
  return modified <= then && status_changed <= then;
}

void write(base::ByteWriter& writer, const FileSignature& signature) {
  writer.number(signature.device);
  writer.number(signature.inode);
  writer.number(signature.bytes);
  writer.number(signature.modified);
  writer.number(signature.status_changed);
}

FileIndex& FileIndex::of_process() {
  return base::once_per_process<FileIndex>([] { return std::make_unique<FileIndex>(); });
}

Result<std::optional<FileIndex::Read>> FileIndex::read(const std::string& path,
                                                       std::chrono::system_clock::time_point now) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (means_absent(errno)) return std::optional<Read>{};
    if (means_unreadable(errno)) return std::optional<Read>(std::in_place);
    return base::system_error("read", path);
  }
  if (!S_ISREG(status.st_mode)) return std::optional<Read>{};
  // Files that were read before need not be opened.
  if (auto known = find(FileSignature::of(status)))
    return std::optional(Read{std::move(known), FileSignature::of(status)});
  const auto opened = KILN_TRY(open_regular(path));
  if (!opened) return std::optional<Read>{};
  if (!opened->handle) return std::optional<Read>(std::in_place);
  auto text = KILN_TRY(read_all(*opened, path));
  auto file = std::make_shared<const ScannedFile>(ScannedFile{base::sha256(text), find_directives(text)});
  // A file that changes while it is read may have two signatures.
  const bool is_unchanged = opened->handle.system().status(opened->handle.get(), &status) == 0 &&
                            FileSignature::of(status) == opened->signature;
  if (is_unchanged && opened->signature.was_settled(now)) add(opened->signature, file);
  return std::optional(Read{std::move(file), opened->signature, std::move(text)});
}

std::shared_ptr<const ScannedFile> FileIndex::find(const FileSignature& signature) {
  const base::MutexLock lock(mutex_);
  const auto found = files_.find(signature);
  return found != files_.end() ? found->second : nullptr;
}

void FileIndex::add(const FileSignature& signature, std::shared_ptr<const ScannedFile> file) {
  const base::MutexLock lock(mutex_);
  if (files_.size() >= max_indexed_files) files_.clear();
  files_.emplace(signature, std::move(file));
}

Result<std::optional<std::string>> read_text(const std::string& path) {
  const auto opened = KILN_TRY(open_regular(path));
  if (!opened || !opened->handle) return std::optional<std::string>{};
  auto text = KILN_TRY(read_all(*opened, path));
  return std::optional(std::move(text));
}

}  // namespace kiln::key
