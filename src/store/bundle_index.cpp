#include "store/bundle_index.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/bytes.hpp"

namespace kiln::store {
namespace {

// Places of fields in the rows of docs/bundles.md.
constexpr std::size_t digest_bytes = 32;
constexpr std::size_t body_in_row = 32;
constexpr std::size_t offset_in_row = 64;
constexpr std::size_t checksum_in_row = 72;
constexpr std::size_t size_in_row = 80;
constexpr std::size_t identity_in_row = 84;
constexpr std::size_t row_in_second_row = 32;
constexpr std::size_t zero_in_second_row = 36;
/// An identity has five texts and a list, each of which begins with its size.
constexpr std::size_t least_identity_bytes = 6 * sizeof(std::uint64_t);

Error damaged_index(std::string why) { return Error(ErrorCode::damaged, std::move(why)); }

template <class T>
T number_at(const std::byte* bytes) noexcept {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

Digest digest_at_place(const std::byte* bytes) noexcept {
  Digest digest;
  std::memcpy(digest.bytes.data(), bytes, digest.bytes.size());
  return digest;
}

/// The first of `count` sorted rows from `first` whose digest is not less than `wanted`. Every row begins with its
/// digest.
std::size_t first_not_below(const std::byte* rows, std::size_t row_bytes, std::size_t first, std::size_t count,
                            const Digest& wanted) noexcept {
  while (count > 0) {
    const std::size_t half = count / 2;
    if (std::memcmp(rows + (first + half) * row_bytes, wanted.bytes.data(), digest_bytes) < 0) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first;
}

}  // namespace

Result<BundleIndex> BundleIndex::parse(std::unique_ptr<const std::byte[]> bytes, const BundleHeader& header) {
  const std::size_t size = header.index_bytes;
  BundleIndex index;
  index.bytes_ = std::move(bytes);
  index.size_ = size;
  if (size < index_begin_bytes) return damaged_index("its index is shorter than an index is");
  base::ByteReader begin(index.bytes());
  const std::uint64_t identities = begin.number<std::uint32_t>();
  const std::uint64_t targets = begin.number<std::uint32_t>();
  index.rows_ = begin.number<std::uint32_t>();
  index.second_rows_ = begin.number<std::uint32_t>();
  const auto identity_bytes = begin.number<std::uint64_t>();
  const auto facts_bytes = begin.number<std::uint64_t>();
  index.record_digest_ = digest_at_place(begin.raw(digest_bytes).data());
  // Signatures cover the index only. Otherwise the requests could be removed from a signed bundle.
  const auto record_bytes = begin.number<std::uint64_t>();
  if (record_bytes != header.record_bytes)
    return damaged_index(fmt::format("its header claims requests of {} bytes, but its index of {}",
                                     header.record_bytes, record_bytes));
  if ((record_bytes == 0) != (index.record_digest_ == Digest{}))
    return damaged_index("the SHA-256 of its requests does not match their size");
  const std::uint64_t fixed = index_begin_bytes + targets * index_target_bytes + index.rows_ * index_row_bytes +
                              index.second_rows_ * index_second_row_bytes;
  if (identity_bytes > size || facts_bytes > size || fixed + identity_bytes + facts_bytes != size)
    return damaged_index("the tables of its index do not have the size of its index");
  if (identities > max_bundle_identities)
    return damaged_index(fmt::format("it claims {} identities, more than {}", identities, max_bundle_identities));
  if (auto problem = index.read_identities(begin.raw(identity_bytes), identities)) return std::move(*problem);
  if (auto problem = index.read_targets(begin.raw(targets * index_target_bytes))) return std::move(*problem);
  index.rows_at_ = begin.raw(index.rows_ * index_row_bytes).data();
  index.second_at_ = begin.raw(index.second_rows_ * index_second_row_bytes).data();
  const auto facts = begin.raw(facts_bytes);
  index.facts_.assign(reinterpret_cast<const char*>(facts.data()), facts.size());
  const std::uint64_t entries_end = record_bytes != 0 ? header.record_offset : header.index_offset;
  if (auto problem = index.check_rows(entries_end)) return std::move(*problem);
  if (auto problem = index.check_second_rows()) return std::move(*problem);
  return index;
}

/// They are sorted by target and compiler, so that those of one target are neighbours.
std::optional<Error> BundleIndex::read_identities(std::span<const std::byte> bytes, std::size_t count) {
  base::CheckedReader reader(bytes);
  if (count > bytes.size() / least_identity_bytes) return damaged_index("its identities are malformed");
  identities_.reserve(count);
  for (std::size_t i = 0; i < count && !reader.failed(); ++i) {
    Identity& identity = identities_.emplace_back();
    for (std::string* text :
         {&identity.api, &identity.vendor, &identity.device, &identity.driver, &identity.compiler})
      *text = reader.text();
    identity.formats.resize(reader.count(sizeof(std::uint32_t)));
    for (std::uint32_t& format : identity.formats) format = reader.number<std::uint32_t>();
    const Digest target = identity.target_digest();
    if (targets_.empty() || targets_.back().digest < target) {
      targets_.push_back({.identity = identity, .digest = target});
      targets_.back().identity.compiler.clear();
    } else if (targets_.back().digest != target || identities_[i - 1].compiler >= identity.compiler) {
      return damaged_index("its identities are not in order");
    }
    target_of_identity_.push_back(targets_.size() - 1);
  }
  if (!reader.is_at_end()) return damaged_index("its identities are malformed");
  return std::nullopt;
}

std::optional<Error> BundleIndex::read_targets(std::span<const std::byte> bytes) {
  if (bytes.size() != targets_.size() * index_target_bytes)
    return damaged_index("its targets are not those of its identities");
  std::size_t rows = 0;
  std::size_t second_rows = 0;
  base::ByteReader reader(bytes);
  for (BundledTarget& target : targets_) {
    if (digest_at_place(reader.raw(digest_bytes).data()) != target.digest)
      return damaged_index("its targets are not those of its identities");
    target.first = rows;
    target.count = reader.number<std::uint32_t>();
    second_of_target_.push_back({.first = second_rows, .count = reader.number<std::uint32_t>()});
    if (target.count == 0) return damaged_index("it has a target without programs");
    rows += target.count;
    second_rows += second_of_target_.back().count;
  }
  if (rows != rows_ || second_rows != second_rows_)
    return damaged_index("its targets do not have as many programs as its index");
  return std::nullopt;
}

std::optional<Error> BundleIndex::check_rows(std::uint64_t entries_end) const {
  std::uint64_t end = bundle_header_bytes;
  for (std::size_t target = 0; target < targets_.size(); ++target) {
    const std::size_t first = targets_[target].first;
    for (std::size_t place = first; place < first + targets_[target].count; ++place) {
      const std::byte* const at = row(place);
      if (place > first && std::memcmp(at - index_row_bytes, at, digest_bytes) >= 0)
        return damaged_index("its programs are not in the order of their keys");
      const auto offset = number_at<std::uint64_t>(at + offset_in_row);
      const std::uint64_t size = number_at<std::uint32_t>(at + size_in_row);
      if (offset < end)
        return damaged_index(fmt::format("the program at byte {} overlaps the one before it", offset));
      if (offset % bundle_alignment != 0)
        return damaged_index(fmt::format("the program at byte {} is not aligned", offset));
      if (size < least_sealed_bytes || size > max_entry_bytes || offset > entries_end ||
          size > entries_end - offset)
        return damaged_index(
            fmt::format("it claims a program of {} bytes at byte {}, where it cannot be", size, offset));
      end = offset + size;
      const auto identity = number_at<std::uint32_t>(at + identity_in_row);
      if (identity >= identities_.size() || target_of_identity_[identity] != target)
        return damaged_index(fmt::format("the program at byte {} has no identity of its target", offset));
    }
  }
  return std::nullopt;
}

std::optional<Error> BundleIndex::check_second_rows() const {
  for (std::size_t target = 0; target < targets_.size(); ++target) {
    const auto [first, count] = second_of_target_[target];
    for (std::size_t place = first; place < first + count; ++place) {
      const std::byte* const at = second_row(place);
      if (row_of_second(place) - targets_[target].first >= targets_[target].count ||
          number_at<std::uint32_t>(at + zero_in_second_row) != 0)
        return damaged_index("its second table has a row of another target");
      if (place == first) continue;
      const int order = std::memcmp(at - index_second_row_bytes, at, digest_bytes);
      if (order > 0 || (order == 0 && row_of_second(place - 1) >= row_of_second(place)))
        return damaged_index("its second table is not in order");
    }
  }
  return std::nullopt;
}

std::size_t BundleIndex::row_of_second(std::size_t place) const noexcept {
  return number_at<std::uint32_t>(second_row(place) + row_in_second_row);
}

BundledProgram BundleIndex::program(std::size_t place) const noexcept {
  const std::byte* const at = row(place);
  return {.key = digest_at_place(at),
          .body = digest_at_place(at + body_in_row),
          .offset = number_at<std::uint64_t>(at + offset_in_row),
          .size = number_at<std::uint32_t>(at + size_in_row),
          .checksum = number_at<std::uint64_t>(at + checksum_in_row),
          .identity = number_at<std::uint32_t>(at + identity_in_row)};
}

std::vector<std::pair<Digest, std::size_t>> BundleIndex::digests_without_toolkit() const {
  std::vector<std::pair<Digest, std::size_t>> digests;
  digests.reserve(second_rows_);
  for (std::size_t place = 0; place < second_rows_; ++place)
    digests.emplace_back(digest_at_place(second_row(place)), row_of_second(place));
  return digests;
}

std::optional<BundledProgram> BundleIndex::find(const BundledTarget& target, const Digest& key) const noexcept {
  const std::size_t place = first_not_below(rows_at_, index_row_bytes, target.first, target.count, key);
  if (place == target.first + target.count || digest_at_place(row(place)) != key) return std::nullopt;
  return program(place);
}

std::optional<BundledProgram> BundleIndex::find_without_toolkit(const BundledTarget& target,
                                                                const Digest& digest) const noexcept {
  const auto same = std::ranges::lower_bound(targets_, target.digest, {}, &BundledTarget::digest);
  if (same == targets_.end() || same->digest != target.digest) return std::nullopt;
  const auto [first, count] = second_of_target_[static_cast<std::size_t>(same - targets_.begin())];
  const std::size_t place = first_not_below(second_at_, index_second_row_bytes, first, count, digest);
  if (place == first + count || digest_at_place(second_row(place)) != digest) return std::nullopt;
  return program(row_of_second(place));
}

}  // namespace kiln::store
