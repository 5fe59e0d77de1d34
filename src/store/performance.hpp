#pragma once

#include <cstddef>
#include <map>
#include <string>

#include <kiln/digest.hpp>
#include <kiln/result.hpp>

#include "base/file.hpp"

namespace kiln::store {

inline constexpr const char* performance_name = "performance.txt";

/// The performance measured for a program; 0 if none was.
struct Performance {
  double gflops = 0;
  double gbps = 0;
  bool operator==(const Performance&) const = default;
};

/// The measured performance of a device folder's programs, as performance.txt keeps it: lines of equal length,
/// ordered by key, so that one is found without reading the others. It holds the `max_programs` that were noted
/// last.
class PerformanceFile {
 public:
  static constexpr std::size_t max_programs = 2048;

  /// An empty one.
  PerformanceFile() = default;
  /// What the folder has; empty if the file is missing or damaged.
  static PerformanceFile read(const base::Folder& folder);
  /// What a file of this text holds; empty if it is no such text.
  static PerformanceFile parse(std::string text);
  /// Adds notes to the folder's file, under a lock against other processes that do the same, and returns the
  /// result.
  static Result<PerformanceFile> add(const base::Folder& folder, const std::map<Digest, Performance>& notes);

  Performance find(const Digest& key) const;
  std::size_t size() const noexcept;

 private:
  explicit PerformanceFile(std::string text) : text_(std::move(text)) {}
  /// The line of a program, by its place in the file.
  std::string_view line(std::size_t number) const;

  /// The whole file, or nothing.
  std::string text_;
};

}  // namespace kiln::store
