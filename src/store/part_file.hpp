#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include <kiln/digest.hpp>
#include <kiln/result.hpp>

#include "base/file.hpp"
#include "base/sha256.hpp"
#include "store/registry.hpp"

namespace kiln::store {

/// The file of an unfinished pull: FILE.part. A lock keeps other processes from writing to it.
class PartFile final : public BundleSink {
 public:
  /// Opens what an earlier pull left, or creates the file. Fails with io if another process has it, or if it is not
  /// a file of this user.
  static Result<std::unique_ptr<PartFile>> open(const std::filesystem::path& file);

  const std::filesystem::path& path() const noexcept { return path_; }
  const base::FileHandle& handle() const noexcept { return handle_; }
  /// Reads the bytes that are there, for their digest. Forgets them if there are more than `most`.
  Result<void> resume(std::uint64_t most, int interrupted);
  /// For `size` bytes in all. Forgets those that are there if no bundle of this size begins with them, and refuses
  /// to write such bytes from now on: a server could fill the disk. Fails with io if the rest does not fit there.
  Result<void> expect_bundle(std::uint64_t size);
  /// Why write() refused bytes; nothing if it did not.
  const std::optional<Error>& refused() const noexcept { return refused_; }
  /// Called after each write.
  void on_write(std::function<void(std::uint64_t received)> call) { on_write_ = std::move(call); }

  std::uint64_t received() const override { return received_; }
  Result<void> restart() override;
  Result<void> write(std::span<const std::byte> bytes) override;
  /// SHA-256 of all bytes. Called once.
  Digest digest() { return hash_.finish(); }

  /// Syncs the file and gives it the final name.
  Result<void> rename();
  void remove() noexcept;
  /// Removes the file if it has no bytes that a later pull can use.
  void remove_if_empty() noexcept;

 private:
  PartFile(std::filesystem::path file, std::filesystem::path path, base::FileHandle handle, base::FileLock lock)
      : file_(std::move(file)), path_(std::move(path)), handle_(std::move(handle)), lock_(std::move(lock)) {}

  /// Checks the first bytes once they are there.
  Result<void> check_begin();

  const std::filesystem::path file_;
  const std::filesystem::path path_;
  base::FileHandle handle_;
  base::FileLock lock_;
  base::Sha256 hash_;
  std::uint64_t received_ = 0;
  /// 0: of any size and form.
  std::uint64_t expected_ = 0;
  std::optional<Error> refused_ = {};
  std::function<void(std::uint64_t)> on_write_ = {};
};

/// Whether the descriptor is readable; -1 never is.
bool is_interrupted(int descriptor);

/// Reads a whole file in parts, at most `size` bytes. Fails with cancelled once the descriptor becomes readable.
Result<std::uint64_t> read_in_parts(const base::FileHandle& file, const std::filesystem::path& path,
                                    std::uint64_t size, int interrupted,
                                    const std::function<void(std::span<const std::byte>)>& receive);

}  // namespace kiln::store
