#pragma once

#include <string_view>

namespace kiln::kernel {

/// What a name is for: a parameter is a macro, and so reaches into every text behind its definition.
enum class NameUse { variable, macro };

/// Why a name would break the text of some language, as in "is a word of GLSL"; empty where it is free in all.
std::string_view why_taken(std::string_view name, NameUse use);

}  // namespace kiln::kernel
