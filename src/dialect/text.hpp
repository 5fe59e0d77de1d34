#pragma once

#include <string_view>
#include <vector>

#include <kiln/request.hpp>

namespace kiln::dialect {

/// What a name is for: a parameter is a macro, and so reaches into every text behind its definition.
enum class NameUse { variable, macro };

/// Why a name would break the text of some language, as in "is a word of GLSL"; empty where it is free in all.
std::string_view why_taken(std::string_view name, NameUse use);

/// What comes first in a language's text: the words that a kernel's source may use, in terms of the language's own.
/// A barrier of a kernel that reads no buffer it writes is for the group's shared arrays alone.
std::vector<std::string_view> prelude(Language language, bool reads_what_it_writes);

}  // namespace kiln::dialect
