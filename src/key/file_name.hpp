#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <kiln/identity.hpp>

namespace kiln::key {

/// What a file name can hold of a text: letters, digits and "._-", anything else as one underscore, at most
/// `max` characters, never empty, never beginning with a dot. A text made by this stays as it is.
std::string file_name_part(std::string_view text, std::size_t max);

/// Identity::folder() of an identity whose digest is known.
std::string folder_name(const Identity& identity, const Digest& digest);

}  // namespace kiln::key
