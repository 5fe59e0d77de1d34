#pragma once

#include <optional>
#include <string_view>

#include <kiln/request.hpp>

/// The options of the compilers, as far as a key must understand them.
namespace kiln::key {

/// Moves defines and include folders from the options to their fields, so that different spellings have the same
/// key. Does nothing in GLSL, whose compilers have no such options.
void move_options(Request::Fields& fields);

/// The first option that makes the compiler read a file that is not part of the key; nothing if there is none.
std::optional<std::string_view> option_that_reads(const Request::Fields& fields);

}  // namespace kiln::key
