#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <kiln/result.hpp>

namespace kiln::store {

/// The names of what lies directly in a folder, from the answer to a PROPFIND with "Depth: 1" (RFC 4918). `folder`
/// is the path of the request's URL and ends with a slash; it may have percent escapes.
///
/// Reads only the elements `href` of each response, as far as they are paths below the folder. Fails with io if the
/// answer is not a well-formed document of this kind, without entities other than those of XML itself, or does not
/// name the folder. The message follows "the server sent".
Result<std::vector<std::string>> names_in_multistatus(std::string_view xml, std::string_view folder);

}  // namespace kiln::store
