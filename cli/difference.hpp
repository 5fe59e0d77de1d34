#pragma once

#include <optional>
#include <string>
#include <vector>

#include <kiln/identity.hpp>

#include "context.hpp"

namespace kiln::cli {

/// A field in which two keys or identities differ. A side without the field has no value.
struct Difference {
  std::string field;
  std::optional<std::string> stored;
  std::optional<std::string> asked;
};

/// Compares two requests by their facts, which Request::describe() returns.
std::vector<Difference> request_differences(const Json& stored, const Json& asked);

/// Compares two identities.
std::vector<Difference> identity_differences(const Identity& stored, const Identity& asked);

}  // namespace kiln::cli
