#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <kiln/digest.hpp>
#include <kiln/result.hpp>

#include <sys/types.h>

#include "base/file.hpp"
#include "base/unfinished_file.hpp"
#include "store/bundle_layout.hpp"
#include "store/signatures.hpp"

namespace kiln::store {

/// A bundle that is being written beside the path that it will have. Removed on destruction if it was not finished.
class UnfinishedBundle {
 public:
  /// `interrupted`: a descriptor; once it is readable, add() fails with cancelled. -1: none.
  static Result<UnfinishedBundle> create(const std::filesystem::path& path, mode_t mode, int interrupted);

  /// Fails with io, and with cancelled.
  Result<void> add(std::span<const std::byte> bytes);
  /// Adds zeros up to the next multiple of bundle_alignment.
  Result<void> align();
  /// Adds bytes of a file, up to its end at most, and returns the SHA-256 of what it added.
  Result<Digest> add_from(const base::FileHandle& from, const std::filesystem::path& name, std::uint64_t bytes);
  std::uint64_t size() const noexcept { return size_; }
  /// Whatever the umask is. A failure changes only who can read the bundle.
  void set_mode(mode_t mode);

  /// Adds the signatures with those of `keys`, in place of older ones of the same names.
  Result<void> sign(std::vector<Signature> before, std::span<const SigningKey> keys, const Digest& index_digest);
  /// Whether a file is the one that finish() replaces. Fails with io.
  Result<bool> replaces(const struct stat& file) const;
  /// Overwrites the first bytes, and puts the file in its place.
  Result<void> finish(const BundleHeader& header);

 private:
  UnfinishedBundle(std::filesystem::path path, base::FileHandle folder, mode_t mode, int interrupted);

  std::filesystem::path path_;
  base::FileHandle folder_;
  std::unique_ptr<base::UnfinishedFile> file_;
  int interrupted_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace kiln::store
