#pragma once

#include <string>
#include <vector>

#include <kiln/result.hpp>

namespace kiln::bench {

/// Runs a program, found along PATH, in a process of its own: what it wrote to standard output, or as an error
/// where it did not end well.
Result<std::string> run_child(std::vector<std::string> command);

/// This very program, for run_child().
std::string this_program();

}  // namespace kiln::bench
