#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <kiln/result.hpp>

namespace kiln::hip {

/// A temporary folder, removed with its contents on destruction.
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

/// Runs a program without a shell and waits for its end. `words` are its name, which is searched in PATH unless it
/// is a path, and its arguments. `environment` replaces variables of this process. Standard output and standard
/// error go to the file `output`. Returns the exit status, or 128 plus the signal number; 0 if the application
/// ignores SIGCHLD. Fails with unsupported if the program does not exist.
Result<int> run_process(const std::vector<std::string>& words,
                        const std::map<std::string, std::string>& environment, const std::filesystem::path& output);

}  // namespace kiln::hip
