#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

/// Kinds of file damage, each applied at every position.
namespace kiln::fakes {

/// Called with every damaged content; `what` describes the damage.
using Damaged = std::function<void(const std::string& bytes, const std::string& what)>;

/// Whether the environment asks for complete sweeps, which take hours.
inline bool damage_all() { return std::getenv("KILN_DAMAGE_ALL") != nullptr; }

/// Selects one of every `step` cases.
struct Sweep {
  std::size_t step = 1;
  std::size_t cases = 0;
  std::size_t seen = 0;

  bool next() { return seen++ % step == 0 && ++cases > 0; }
  /// Whether this case gets the slower, closer check; true for one of 16.
  bool closely() const { return cases % 16 == 1 || damage_all(); }
};

/// Changes a file in place. Truncating it first would be slow, because some file systems then flush it at once.
inline void overwrite(const std::filesystem::path& path, std::string_view bytes) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const auto size = static_cast<off_t>(bytes.size());
  if (file < 0 || pwrite(file, bytes.data(), bytes.size(), 0) != size || ftruncate(file, size) != 0) std::abort();
  close(file);
}

inline void flip_every_bit(std::string bytes, Sweep& sweep, const Damaged& damaged) {
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    if (!sweep.next()) continue;
    const char whole = bytes[bit / 8];
    bytes[bit / 8] = static_cast<char>(static_cast<unsigned char>(whole) ^ (1U << bit % 8));
    damaged(bytes, "bit " + std::to_string(bit) + " flipped");
    bytes[bit / 8] = whole;
  }
}

/// Sets each of the first bytes to every other value.
inline void set_every_value(std::string bytes, std::size_t first, Sweep& sweep, const Damaged& damaged) {
  for (std::size_t at = 0; at < std::min(first, bytes.size()); ++at) {
    const char whole = bytes[at];
    for (int value = 0; value < 256; ++value) {
      if (static_cast<char>(value) == whole || !sweep.next()) continue;
      bytes[at] = static_cast<char>(value);
      damaged(bytes, "byte " + std::to_string(at) + " set to " + std::to_string(value));
    }
    bytes[at] = whole;
  }
}

inline void cut_at_every_length(const std::string& bytes, Sweep& sweep, const Damaged& damaged) {
  for (std::size_t length = 0; length < bytes.size(); ++length)
    if (sweep.next()) damaged(bytes.substr(0, length), "cut to " + std::to_string(length) + " bytes");
}

/// Zeroes each block of the given size, like a disk that never wrote it.
inline void zero_every_block(const std::string& bytes, std::size_t block, Sweep& sweep, const Damaged& damaged) {
  for (std::size_t at = 0; at < bytes.size(); at += block) {
    std::string zeroed = bytes;
    const std::size_t size = std::min(block, bytes.size() - at);
    zeroed.replace(at, size, size, '\0');
    if (zeroed != bytes && sweep.next())
      damaged(zeroed, std::to_string(block) + " bytes from " + std::to_string(at) + " zeroed");
  }
}

/// Prints the number of cases for docs/reliability.md; fails if there were none.
inline void report_cases(std::string_view fault, std::size_t cases) {
  EXPECT_GT(cases, 0U) << fault;
  std::printf("%.*s: %zu cases\n", static_cast<int>(fault.size()), fault.data(), cases);
}

}  // namespace kiln::fakes
