#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <kiln/kernels/tuner.hpp>

#include "terminal.hpp"

namespace kiln::cli {

/// Plots a search for a terminal: the time of each variant in the order of the trials, and the best time up to
/// then.
std::string plot_of(const std::vector<TuneTrial>& trials, const Terminal& terminal);

/// Writes the plot and a table of the trials as an HTML page, or only the plot if the file name ends in .svg.
/// Throws Failure.
void write_tune_report(const std::filesystem::path& file, const Device& device, const TuneRecord& record,
                       const std::vector<TuneTrial>& trials);

}  // namespace kiln::cli
