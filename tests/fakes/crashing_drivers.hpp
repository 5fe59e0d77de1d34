#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "fakes/files.hpp"

namespace kiln::fakes {

/// Environment variables that make `library` the OpenCL and Vulkan driver; writes the driver manifests to `folder`.
inline std::map<std::string, std::string> crashing_drivers(const std::filesystem::path& folder,
                                                           const std::string& library) {
  write_file(folder / "crash.icd", library + "\n");
  write_file(folder / "crash.json", R"({"file_format_version": "1.0.0", "ICD": {"library_path": ")" + library +
                                        R"(", "api_version": "1.3.0"}})");
  return {{"OCL_ICD_VENDORS", folder / "crash.icd"},
          {"VK_ICD_FILENAMES", folder / "crash.json"},
          {"VK_DRIVER_FILES", folder / "crash.json"}};
}

}  // namespace kiln::fakes
