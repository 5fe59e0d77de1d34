#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <kiln/kernels/tuner.hpp>

#include "terminal.hpp"

namespace kiln::cli {

/// How a search went, for a terminal: the time of each variant, one after the other, and the best so far.
std::string plot_of(const std::vector<TuneTrial>& trials, const Terminal& terminal);

/// The same as a picture with a table, an HTML page or, where the name ends in .svg, the picture alone. Throws
/// Failure.
void write_tune_report(const std::filesystem::path& file, const Device& device, const TuneRecord& record,
                       const std::vector<TuneTrial>& trials);

}  // namespace kiln::cli
