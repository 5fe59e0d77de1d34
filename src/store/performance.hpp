#pragma once

#include <cstddef>
#include <map>
#include <string>

#include <kiln/digest.hpp>
#include <kiln/result.hpp>

#include "base/file.hpp"

namespace kiln::store {

inline constexpr const char* performance_name = "performance.txt";

/// The measured performance of a program; 0 if not measured.
struct Performance {
  double gflops = 0;
  double gbps = 0;
  bool operator==(const Performance&) const = default;
};

/// The measured performance of a device folder's programs, in the format of performance.txt: lines of equal length,
/// sorted by key for binary search. Holds the `max_programs` latest notes.
class PerformanceFile {
 public:
  static constexpr std::size_t max_programs = 2048;

  PerformanceFile() = default;
  /// Reads the folder's file; empty if it is missing or damaged.
  static PerformanceFile read(const base::Folder& folder);
  /// Parses the text of a file; empty if it is invalid.
  static PerformanceFile parse(std::string text);
  /// Adds notes to the folder's file and returns the new contents. Waits up to bookkeeping_timeout for the lock,
  /// then continues without it.
  static Result<PerformanceFile> add(const base::Folder& folder, const std::map<Digest, Performance>& notes);

  Performance find(const Digest& key) const;
  std::size_t size() const noexcept;

 private:
  explicit PerformanceFile(std::string text) : text_(std::move(text)) {}
  std::string_view line(std::size_t number) const;

  /// The text of the whole file, or empty.
  std::string text_;
};

}  // namespace kiln::store
