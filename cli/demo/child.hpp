#pragma once

#include "../context.hpp"

namespace kiln::cli::demo {

/// What a process of the demo does: gets every program from a cache in the directory of `context`, runs it, checks
/// its result, and writes what report.hpp describes to `descriptor`. The exit status.
int run_child(const Context& context, int descriptor);

}  // namespace kiln::cli::demo
