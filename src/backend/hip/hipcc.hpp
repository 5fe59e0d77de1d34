#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <kiln/result.hpp>

namespace kiln::hip {

/// A folder of this process's own, removed with all it holds.
class ScratchFolder {
 public:
  static Result<ScratchFolder> create();

  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder();

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  explicit ScratchFolder(std::filesystem::path path) noexcept : path_(std::move(path)) {}

  std::filesystem::path path_;
};

/// Runs a program, found by PATH unless it is a path, without a shell, and waits for its end: the exit status, or
/// 128 and the signal. All it prints goes to the file `output`. ErrorCode::unsupported where there is no such
/// program.
Result<int> run_process(const std::vector<std::string>& words,
                        const std::map<std::string, std::string>& environment, const std::filesystem::path& output);

}  // namespace kiln::hip
