#pragma once

#include "context.hpp"

namespace kiln::cli {

/// Adds what the facts of an entry (docs/format.md) say about its request, to a table of fields. Lists a few of the
/// included files, or all.
void add_facts(Table& table, const Json& facts, bool lists_all);

}  // namespace kiln::cli
