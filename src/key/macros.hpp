#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "key/directives.hpp"

namespace kiln::key {

/// The macros that the operands of #include may use. A macro has all definitions that were seen in any file,
/// because conditions are not evaluated: an operand has a set of possible values.
class Macros {
 public:
  explicit Macros(const std::map<std::string, std::string>& defines);
  void add(std::vector<Definition> definitions);

  /// Every file name that the operand of a computed #include can stand for, sorted; values that are no file names
  /// are left out. Nothing if they cannot be listed: they use a macro that the compiler itself defines, or there
  /// are too many.
  std::optional<std::vector<HeaderName>> header_names(std::string_view operand) const;

 private:
  std::unordered_map<std::string, std::vector<Definition>> definitions_;
};

}  // namespace kiln::key
