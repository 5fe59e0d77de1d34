#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

/// What every fuzzer defines: it returns 0, and ends the process where a promise is broken.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

/// What fuzzers have in common.
namespace kiln::fuzz {

inline void expect(bool kept, const char* promise) {
  if (kept) return;
  std::fprintf(stderr, "a promise is broken: %s\n", promise);
  std::abort();
}

/// Whether a file of this name is in its folder, on every file system.
inline bool is_plain_file_name(std::string_view name) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name.size() <= 200 && name[0] != '.' &&
         name.find_first_not_of(plain) == std::string_view::npos;
}

/// An input, taken from its front. Behind its end there are zeros and empty texts.
class Input {
 public:
  /// What stands between texts: one can type it, and no source or name has it.
  static constexpr char separator = '\x1e';

  Input(const std::uint8_t* data, std::size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const noexcept { return rest_.empty(); }

  template <class T>
  requires std::is_arithmetic_v<T> T number() {
    T value{};
    const std::string_view bytes = take(sizeof value);
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }

  /// Up to the next separator.
  std::string text() {
    std::string text(take(std::min(rest_.find(separator), rest_.size())));
    take(1);
    return text;
  }

  std::string_view rest() const noexcept { return rest_; }
  std::span<const std::byte> rest_bytes() const noexcept {
    return std::as_bytes(std::span(rest_.data(), rest_.size()));
  }

 private:
  std::string_view take(std::size_t size) {
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view rest_;
};

}  // namespace kiln::fuzz
