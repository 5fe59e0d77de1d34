#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/digest.hpp>

namespace kiln::base {

static_assert(std::endian::native == std::endian::little, "Kiln's files are little-endian");

/// Appends numbers and strings to a growing byte array, in little-endian order.
class ByteWriter {
 public:
  template <class T>
  requires std::is_arithmetic_v<T>
  void number(T value) { append(&value, sizeof value); }
  void raw(std::span<const std::byte> bytes) { append(bytes.data(), bytes.size()); }
  /// Writes the length before the characters, so that different lists of strings never produce the same bytes.
  void text(std::string_view text) {
    number(static_cast<std::uint64_t>(text.size()));
    append(text.data(), text.size());
  }
  const std::vector<std::byte>& bytes() const& noexcept { return bytes_; }
  std::vector<std::byte> bytes() && noexcept { return std::move(bytes_); }

 private:
  void append(const void* data, std::size_t size) {
    if (size == 0) return;
    const std::size_t before = bytes_.size();
    bytes_.resize(before + size);
    std::memcpy(bytes_.data() + before, data, size);
  }

  std::vector<std::byte> bytes_;
};

/// Reads the format of ByteWriter. The caller checks that enough bytes are left.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  requires std::is_arithmetic_v<T> T number() {
    T value;
    std::memcpy(&value, raw(sizeof value).data(), sizeof value);
    return value;
  }
  std::span<const std::byte> raw(std::size_t size) {
    const auto taken = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return taken;
  }

 private:
  std::span<const std::byte> bytes_;
};

/// Reads the format of ByteWriter from bytes that may be truncated or wrong. After a failure, all values are empty.
class CheckedReader {
 public:
  explicit CheckedReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool failed() const noexcept { return failed_; }
  /// Whether all bytes were read, without a failure.
  bool is_at_end() const noexcept { return !failed_ && bytes_.empty(); }

  template <class T>
  requires std::is_arithmetic_v<T> T number() {
    T value{};
    if (take(sizeof value)) std::memcpy(&value, taken_.data(), sizeof value);
    return value;
  }
  /// A number of items, each of at least `least` bytes.
  std::size_t count(std::size_t least) {
    const auto value = number<std::uint64_t>();
    if (value > bytes_.size() / least) failed_ = true;
    return failed_ ? 0 : static_cast<std::size_t>(value);
  }
  std::string text() {
    const std::size_t size = count(1);
    return take(size) ? std::string(reinterpret_cast<const char*>(taken_.data()), size) : std::string();
  }
  Digest digest() {
    Digest digest;
    if (take(digest.bytes.size())) std::ranges::copy(taken_, digest.bytes.begin());
    return digest;
  }

 private:
  bool take(std::size_t size) {
    if (failed_ || size > bytes_.size()) {
      failed_ = true;
      return false;
    }
    taken_ = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return true;
  }

  std::span<const std::byte> bytes_;
  std::span<const std::byte> taken_;
  bool failed_ = false;
};

}  // namespace kiln::base
