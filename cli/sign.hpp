#pragma once

#include <string>
#include <vector>

#include "context.hpp"
#include "store/signatures.hpp"

namespace kiln::cli {

/// The key of this file, or if it is empty, those of the settings. Throws Failure if there is none.
std::vector<store::SigningKey> chosen_keys(const Context& context, const std::string& key_file);

}  // namespace kiln::cli
