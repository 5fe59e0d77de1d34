#pragma once

#include <string>
#include <vector>

#include <kiln/identity.hpp>
#include <kiln/request.hpp>

#include "context.hpp"
#include "difference.hpp"

namespace kiln::cli {

/// How the shared stores would answer a request.
struct SharedAnswer {
  struct Store {
    std::string name;
    /// "hit", "miss", "refused", "failed" or "not asked".
    std::string outcome;
    /// The differences from a device for which the store has the program; only for folders, which can be listed.
    std::vector<Difference> identity = {};
  };

  /// The name of the store that has the program; empty if none has it.
  std::string store = {};
  std::vector<Store> stores = {};
  /// What went wrong, for people.
  std::vector<std::string> problems = {};
};

/// Asks the shared stores of --shared or of the settings, as a cache does. Takes a few seconds if a server does not
/// answer. Throws UsageError if a URL of --shared is not valid.
SharedAnswer ask_shared_stores(const Context& context, const Request& request, const Identity& identity);

}  // namespace kiln::cli
