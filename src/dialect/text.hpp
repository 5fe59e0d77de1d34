#pragma once

#include <string_view>
#include <vector>

#include <kiln/request.hpp>

namespace kiln::dialect {

/// What a name is used for. Kernel parameters are macros, which affect all text after their definition.
enum class NameUse { variable, macro };

/// Why a name would break the text in some language, for example "is a word of GLSL"; empty if it breaks none.
std::string_view why_taken(std::string_view name, NameUse use);

/// The beginning of a language's text: defines the dialect's names in terms of the language. If the kernel reads no
/// buffer that it writes, group_barrier() covers only shared arrays.
std::vector<std::string_view> prelude(Language language, bool reads_what_it_writes);

}  // namespace kiln::dialect
