#include "store/unfinished_bundle.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/sha256.hpp"
#include "base/try.hpp"

namespace kiln::store {
namespace {

constexpr std::size_t copied_at_once = std::size_t{1} << 20;

}  // namespace

Result<UnfinishedBundle> UnfinishedBundle::create(const std::filesystem::path& path, mode_t mode, int interrupted) {
  const base::FileSystem& system = base::FileSystem::system();
  const std::filesystem::path parent = path.has_parent_path() ? path.parent_path() : ".";
  // O_PATH, because a folder that cannot be listed may still be written to.
  base::FileHandle folder(system.open(AT_FDCWD, parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC, 0), system);
  if (!folder) return base::system_error("open the folder", parent);
  UnfinishedBundle bundle(path, std::move(folder), mode, interrupted);
  if (!bundle.file_->exists()) return base::system_error("write", path);
  return bundle;
}

UnfinishedBundle::UnfinishedBundle(std::filesystem::path path, base::FileHandle folder, mode_t mode,
                                   int interrupted)
    : path_(std::move(path)),
      folder_(std::move(folder)),
      file_(std::make_unique<base::UnfinishedFile>(folder_.get(), mode, folder_.system())),
      interrupted_(interrupted) {}

Result<void> UnfinishedBundle::add(std::span<const std::byte> bytes) {
  pollfd wait = {interrupted_, POLLIN, 0};
  if (interrupted_ >= 0 && ::poll(&wait, 1, 0) > 0)
    return Error(ErrorCode::cancelled, fmt::format("the writing of {} was interrupted", path_.string()));
  if (!file_->write(bytes)) return base::system_error("write", path_);
  size_ += bytes.size();
  return {};
}

Result<void> UnfinishedBundle::align() {
  const std::vector<std::byte> zeros(aligned_for_bundle(size_) - size_);
  return add(zeros);
}

Result<Digest> UnfinishedBundle::add_from(const base::FileHandle& from, const std::filesystem::path& name,
                                          std::uint64_t bytes) {
  base::Sha256 hash;
  std::vector<std::byte> piece(std::min<std::uint64_t>(bytes, copied_at_once));
  while (bytes > 0) {
    const ssize_t got = from.system().read(from.get(), piece.data(), std::min<std::uint64_t>(bytes, piece.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::system_error("read", name);
    if (got == 0) break;
    const auto added = std::span(piece).first(static_cast<std::size_t>(got));
    hash.add(added);
    KILN_TRY(add(added));
    bytes -= added.size();
  }
  return hash.finish();
}

void UnfinishedBundle::set_mode(mode_t mode) { static_cast<void>(::fchmod(file_->handle().get(), mode)); }

Result<void> UnfinishedBundle::sign(std::vector<Signature> before, std::span<const SigningKey> keys,
                                    const Digest& index_digest) {
  const auto all = KILN_TRY(add_signatures(std::move(before), keys, signed_bytes_of_bundle(index_digest)));
  const auto block = KILN_TRY(signature_block(all));
  return add(bundle_signatures(block));
}

Result<bool> UnfinishedBundle::replaces(const struct stat& file) const {
  struct stat now {};
  if (folder_.system().status(folder_.get(), path_.filename().c_str(), &now) != 0)
    return base::system_error("examine", path_);
  return now.st_dev == file.st_dev && now.st_ino == file.st_ino;
}

Result<void> UnfinishedBundle::finish(const BundleHeader& header) {
  const base::FileHandle& handle = file_->handle();
  if (::lseek(handle.get(), 0, SEEK_SET) != 0 || !file_->write(header.to_bytes()) ||
      handle.system().sync(handle.get()) != 0 || !file_->close_and_rename(path_.filename()))
    return base::system_error("write", path_);
  return {};
}

}  // namespace kiln::store
