#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>

namespace kiln::fakes {

inline std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// For example "word_7".
inline std::string numbered(const std::string& word, int number) { return word + "_" + std::to_string(number); }

/// Writes a file in place; creates its folders.
inline void write_file(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!stream.flush()) std::abort();
}
inline void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  write_file(path, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// The number of open descriptors of this process, including the one used for counting.
inline long open_descriptors() { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); }

/// The names in a folder, sorted.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& item : std::filesystem::directory_iterator(folder)) names.push_back(item.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// The time since a file's modification, in seconds.
inline std::chrono::seconds age_of(const std::filesystem::path& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) std::abort();
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return std::chrono::seconds(now - status.st_mtime);
}

/// Sets a file's modification time to `age` ago.
inline void set_age(const std::filesystem::path& path, std::chrono::seconds age) {
  const auto then = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now() - age);
  const timespec times[2] = {{then, 0}, {then, 0}};
  if (utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) std::abort();
}

}  // namespace kiln::fakes
