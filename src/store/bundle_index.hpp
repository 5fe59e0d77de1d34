#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <kiln/digest.hpp>
#include <kiln/identity.hpp>
#include <kiln/result.hpp>

#include "store/bundle.hpp"
#include "store/bundle_layout.hpp"

namespace kiln::store {

/// The index of a bundle: the bytes of the file, whose rows are decoded when they are looked up. A value that is
/// not changed.
class BundleIndex {
 public:
  /// Checks every row, and the size of the record of requests. `header` is that of the bundle. Fails with damaged.
  static Result<BundleIndex> parse(std::unique_ptr<const std::byte[]> bytes, const BundleHeader& header);

  std::span<const std::byte> bytes() const noexcept { return {bytes_.get(), size_}; }
  const std::vector<BundledTarget>& targets() const noexcept { return targets_; }
  const std::vector<Identity>& identities() const noexcept { return identities_; }
  const std::string& facts() const noexcept { return facts_; }
  /// SHA-256 of the record of requests; zeros if there is none.
  const Digest& record_digest() const noexcept { return record_digest_; }

  std::size_t size() const noexcept { return rows_; }
  BundledProgram program(std::size_t place) const noexcept;
  std::vector<std::pair<Digest, std::size_t>> digests_without_toolkit() const;
  std::optional<BundledProgram> find(const BundledTarget& target, const Digest& key) const noexcept;
  std::optional<BundledProgram> find_without_toolkit(const BundledTarget& target,
                                                     const Digest& digest) const noexcept;

 private:
  /// Rows of the second table.
  struct Rows {
    std::size_t first = 0;
    std::size_t count = 0;
  };

  BundleIndex() = default;
  const std::byte* row(std::size_t place) const noexcept { return rows_at_ + place * index_row_bytes; }
  const std::byte* second_row(std::size_t place) const noexcept {
    return second_at_ + place * index_second_row_bytes;
  }
  std::size_t row_of_second(std::size_t place) const noexcept;

  std::optional<Error> read_identities(std::span<const std::byte> bytes, std::size_t count);
  std::optional<Error> read_targets(std::span<const std::byte> bytes);
  std::optional<Error> check_rows(std::uint64_t entries_end) const;
  std::optional<Error> check_second_rows() const;

  std::unique_ptr<const std::byte[]> bytes_;
  std::size_t size_ = 0;
  std::size_t rows_ = 0;
  std::size_t second_rows_ = 0;
  const std::byte* rows_at_ = nullptr;
  const std::byte* second_at_ = nullptr;
  std::vector<Identity> identities_;
  /// Of each identity, an index into targets_.
  std::vector<std::size_t> target_of_identity_;
  std::vector<BundledTarget> targets_;
  /// Of each target.
  std::vector<Rows> second_of_target_;
  std::string facts_;
  Digest record_digest_;
};

}  // namespace kiln::store
