#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

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

}  // namespace kiln::base
