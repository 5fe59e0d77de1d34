#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "key/directives.hpp"
#include "key/macro_expander.hpp"

namespace kiln::key {

/// The macros that the operands of #include may use, and the values of these operands.
class Macros {
 public:
  explicit Macros(const std::map<std::string, std::string>& defines);
  /// Whose file has the definitions.
  enum class Origin { user, toolkit };
  void add(Definitions found, Origin origin = Origin::user);

  using Names = std::vector<HeaderName>;
  /// Every file name that the operand of a computed #include can stand for, sorted, or null if they cannot be
  /// listed: they use a macro that the compiler may define, or there are more than 256. The same object, until a
  /// macro that it depends on gets another definition.
  std::shared_ptr<const Names> header_names(const std::string& operand);

  /// Whether the values of an operand may depend on definitions of the toolkit.
  bool uses_toolkit(const std::string& operand) const;

 private:
  /// The macro, for a change after which the operands that use it have other values.
  Macro& change(const std::string& name);

  MacroTable macros_;
  std::unordered_map<std::string, std::shared_ptr<const Names>> known_;
  /// By macro, the operands in `known_` that use it.
  std::unordered_map<std::string, std::vector<std::string>> users_;
};

}  // namespace kiln::key
