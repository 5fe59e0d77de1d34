#pragma once

#include "context.hpp"

namespace kiln::cli {

/// Adds `kiln demo`: real programs got in a fresh process cold, then in fresh processes warm.
void add_demo(CLI::App& app, Context& context);

}  // namespace kiln::cli
