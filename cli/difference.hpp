#pragma once

#include <optional>
#include <string>
#include <vector>

#include <kiln/identity.hpp>

#include "context.hpp"

namespace kiln::cli {

/// A field of a key or an identity that differs; nothing where one side does not have it at all.
struct Difference {
  std::string field;
  std::optional<std::string> stored;
  std::optional<std::string> asked;
};

/// In what the facts of two requests differ, as Request::describe() tells them.
std::vector<Difference> request_differences(const Json& stored, const Json& asked);

/// In what two identities differ.
std::vector<Difference> identity_differences(const Identity& stored, const Identity& asked);

}  // namespace kiln::cli
