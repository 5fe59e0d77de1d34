#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <kiln/identity.hpp>

namespace kiln::key {

/// Turns a text into a part of a file name: keeps letters, digits and "._-", replaces each run of other characters
/// by one underscore, and cuts at `max` characters. The result is never empty and never begins with a dot.
/// Idempotent.
std::string file_name_part(std::string_view text, std::size_t max);

/// Identity::folder(), for a caller that already has the identity's digest.
std::string folder_name(const Identity& identity, const Digest& digest);

}  // namespace kiln::key
