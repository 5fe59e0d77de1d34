#pragma once

#include <string_view>
#include <vector>

#include <kiln/request.hpp>

namespace kiln::kernel {

/// What comes first in a language's text: the words that a kernel's source may use, in terms of the language's own.
std::vector<std::string_view> prelude(Language language);

}  // namespace kiln::kernel
