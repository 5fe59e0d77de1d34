#pragma once

#include <string_view>
#include <vector>

#include <kiln/request.hpp>

namespace kiln::kernel {

/// What comes first in a language's text: the words that a kernel's source may use, in terms of the language's own.
/// A barrier of a kernel that reads no buffer it writes is for the group's shared arrays alone.
std::vector<std::string_view> prelude(Language language, bool reads_what_it_writes);

}  // namespace kiln::kernel
