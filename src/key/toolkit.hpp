#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include <kiln/request.hpp>

namespace kiln::key {

/// The folders with the headers of a language's toolkit, absolute and in the order in which they are searched;
/// empty if none is installed or the language has none.
///
/// For CUDA, these are `include` and `include/cccl` in `$CUDA_HOME`, `$CUDA_PATH`, /usr/local/cuda, or the
/// installation of the NVRTC that the dynamic loader finds, whichever is the first to have them. For HIP, `include`
/// in `$ROCM_PATH`, `$HIP_PATH`, /opt/rocm or /usr.
std::vector<std::filesystem::path> toolkit_folders(Language language);

/// Tells the files of the toolkit from those of the user, by their paths.
class ToolkitFiles {
 public:
  /// `folders` are searched in this order; the last `count` are those of the toolkit. A folder of the user that is
  /// one of the toolkit's under another name counts as the toolkit's.
  ToolkitFiles(const std::vector<std::filesystem::path>& folders, std::size_t count);

  /// Whether a file is in a folder of the toolkit, and not in a deeper one of the user.
  bool contains(const std::string& path) const;
  /// Whether a folder of the toolkit also has headers of others, so that contains() cannot tell them apart:
  /// /usr/include, /usr/local/include, or the folder of a conda environment.
  bool are_mixed() const noexcept { return are_mixed_; }

 private:
  struct Folder {
    /// With a slash at its end.
    std::string path;
    bool is_toolkit = false;
  };
  /// Empty if there is no toolkit. The longest path is the first.
  std::vector<Folder> folders_;
  bool are_mixed_ = false;
};

}  // namespace kiln::key
