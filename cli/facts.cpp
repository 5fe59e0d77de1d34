#include "facts.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "inventory.hpp"

namespace kiln::cli {
namespace {

/// How many included files are listed without --long. Headers of CUDA include a thousand others.
constexpr std::size_t shown_files = 20;

/// A list of strings of the facts, on one line.
std::string join_facts(const Json& facts, const std::string& field) {
  std::vector<std::string> parts;
  const auto found = facts.find(field);
  if (found != facts.end() && found->is_array())
    for (const auto& part : *found)
      if (part.is_string()) parts.push_back(part.get<std::string>());
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, " "));
}

}  // namespace

void add_facts(Table& table, const Json& facts, bool lists_all) {
  table.add({"  language", text_of(facts, "language")});
  const bool has_entries = facts.contains("entries") && facts["entries"].is_array();
  if (!has_entries)
    table.add({"  entry point", text_of(facts, "entry")});
  else if (facts["entries"].empty())
    table.add({"  entry points", "all"});
  else
    for (const auto& entry : facts["entries"])
      table.add({"  entry point", entry.is_string() ? entry.get<std::string>() : entry.dump()});
  table.add({"  options", join_facts(facts, "options")});
  const auto defines = facts.find("defines");
  if (defines == facts.end() || !defines->is_object() || defines->empty()) {
    table.add({"  defines", "none"});
  } else {
    for (const auto& [name, value] : defines->items())
      table.add(
          {"  define", fmt::format("{}={}", name, value.is_string() ? value.get<std::string>() : value.dump())});
  }
  const auto source = facts.find("source");
  if (source != facts.end() && source->is_object()) {
    const auto bytes = source->find("bytes");
    table.add({"  source", fmt::format("{} bytes, sha256 {}",
                                       bytes != source->end() && bytes->is_number() ? bytes->dump() : "?",
                                       text_of(*source, "sha256"))});
  }
  const auto files = facts.find("files");
  if (files == facts.end() || !files->is_array() || files->size() < 2) return;
  // The first file is the source itself.
  const std::size_t shown = lists_all ? files->size() : std::min(files->size(), shown_files + 1);
  for (std::size_t i = 1; i < shown; ++i)
    if ((*files)[i].is_object())
      table.add({"  included",
                 fmt::format("{}, sha256 {}", text_of((*files)[i], "name"), text_of((*files)[i], "sha256"))});
  if (shown < files->size())
    table.add({"  included", fmt::format("{} more files; --long lists them", files->size() - shown)});
}

}  // namespace kiln::cli
