#include "key/macros.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "key/source_lines.hpp"

namespace kiln::key {
namespace {

void add_name(std::set<HeaderName>& names, std::string name, bool quoted) {
  if (!name.empty()) names.insert({std::move(name), quoted});
}

/// The file names that compilers read from a value.
void add_names(const Tokens& value, std::set<HeaderName>& names) {
  HeaderName named;
  if (value.empty() || !read_header_name(text_of(value), named)) return;
  add_name(names, named.name, named.quoted);
  if (named.quoted) {
    // clang takes a string with quotes in it to its end, NVRTC to the first quote.
    const std::string& string = value[0].text;
    return add_name(names, string.substr(1, string.size() - 2), true);
  }
  // NVRTC removes blanks before '>', and those that a macro without a value leaves.
  const std::size_t last = named.name.find_last_not_of(' ');
  if (last != std::string::npos) add_name(names, named.name.substr(0, last + 1), false);
  std::erase(named.name, ' ');
  add_name(names, named.name, false);
}

}  // namespace

Macros::Macros(const std::map<std::string, std::string>& defines) {
  for (const auto& [name, value] : defines)
    for (Definition& definition : find_definitions("#define " + name + ' ' + value).defined) {
      Macro& macro = macros_[definition.name];
      macro.is_given = true;
      macro.definitions.push_back(std::move(definition));
    }
}

void Macros::add(Definitions found, Origin origin) {
  if (origin == Origin::toolkit) {
    for (const Definition& definition : found.defined) macros_[definition.name].is_of_toolkit = true;
    for (const std::string& name : found.undefined)
      if (const auto known = macros_.find(name); known != macros_.end()) known->second.is_of_toolkit = true;
  }
  for (Definition& definition : found.defined) {
    const auto known = macros_.find(definition.name);
    if (known != macros_.end() &&
        std::ranges::find(known->second.definitions, definition) != known->second.definitions.end())
      continue;
    change(definition.name).definitions.push_back(std::move(definition));
  }
  for (const std::string& name : found.undefined) {
    const auto known = macros_.find(name);
    if (known != macros_.end() && known->second.is_given && !known->second.is_undefined)
      change(name).is_undefined = true;
  }
}

Macro& Macros::change(const std::string& name) {
  if (const auto users = users_.extract(name))
    for (const std::string& operand : users.mapped()) known_.erase(operand);
  return macros_[name];
}

std::shared_ptr<const Macros::Names> Macros::header_names(const std::string& operand) {
  const auto known = known_.find(operand);
  if (known != known_.end()) return known->second;
  MacroExpander expander(macros_);
  const auto values = expander.values_of(operand);
  std::shared_ptr<const Names> result;
  if (values) {
    std::set<HeaderName> names;
    for (const Tokens& value : *values) add_names(value, names);
    result = std::make_shared<const Names>(names.begin(), names.end());
  }
  known_.emplace(operand, result);
  for (const std::string& name : expander.used_names()) users_[name].push_back(operand);
  return result;
}

bool Macros::uses_toolkit(const std::string& operand) const {
  MacroExpander expander(macros_);
  static_cast<void>(expander.values_of(operand));
  return std::ranges::any_of(expander.used_names(), [this](const std::string& name) {
    const auto known = macros_.find(name);
    return known != macros_.end() && known->second.is_of_toolkit;
  });
}

}  // namespace kiln::key
