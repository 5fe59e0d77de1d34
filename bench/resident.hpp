#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <kiln/result.hpp>

namespace kiln::bench {

/// Which programs a process loads to see how much memory they take.
struct ResidentCase {
  /// OpenGL programs that are "compiled", or that come from "disk"; "bare" for those on disk loaded without a
  /// cache: the driver's own part; "empty" for programs without a driver: Kiln's own part.
  std::string kind = {};
  std::size_t count = 0;
  std::filesystem::path directory = {};
};

/// Memory of a process, in megabytes.
struct Resident {
  /// What the programs and their cache took.
  double growth = 0;
  /// The whole process, driver and all.
  double total = 0;
};

/// Loads the programs in a process of its own, so that no memory that was freed before is used again for them.
Result<Resident> measure_resident(const ResidentCase& which);

/// The other side of measure_resident(): what main returns where this process was started by it.
std::optional<int> resident_process(int argc, char** argv);

}  // namespace kiln::bench
