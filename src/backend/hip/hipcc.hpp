#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <kiln/result.hpp>

namespace kiln::hip {

/// Runs a program without a shell and waits for its end. `words` are its name, which is searched in PATH unless it
/// is a path, and its arguments. `environment` replaces variables of this process. Standard output and standard
/// error go to the file `output`. Returns the exit status, or 128 plus the signal number; 0 if the application
/// ignores SIGCHLD. Fails with unsupported if the program does not exist.
Result<int> run_process(const std::vector<std::string>& words,
                        const std::map<std::string, std::string>& environment, const std::filesystem::path& output);

}  // namespace kiln::hip
