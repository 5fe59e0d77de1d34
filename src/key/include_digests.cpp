#include <algorithm>
#include <utility>

#include "base/sha256.hpp"
#include "key/include_graph.hpp"

/// The digests of a graph. One covers all files, the other only those of the user.
namespace kiln::key {

IncludeGraph::Target IncludeGraph::in_key(Target target) noexcept {
  if (target == unreadable_in_toolkit) return unreadable;
  if (target == present_in_toolkit) return present;
  return target;
}

Dependencies IncludeGraph::dependencies() const {
  Dependencies result;
  base::ByteWriter writer;
  writer.text("kiln dependencies 1");
  for (const Node& node : nodes_) {
    writer.raw(node.file->digest.bytes);
    writer.number(static_cast<std::uint64_t>(node.same_file));
    for (const auto* results : {&node.results, &node.computed_results}) {
      writer.number(static_cast<std::uint64_t>(results->size()));
      for (const Target target : *results) writer.number(in_key(target));
    }
    if (&node != &nodes_.front()) result.files.push_back({node.name, node.file->digest});
  }
  if (has_everything_) writer.raw(everything_.bytes());
  result.digest = base::sha256(writer.bytes());
  result.without_toolkit = digest_without_toolkit();
  result.missing.assign(missing_.begin(), missing_.end());
  return result;
}

bool IncludeGraph::leads_into_toolkit(Target target) const {
  if (target >= 0) return nodes_[static_cast<std::size_t>(target)].is_toolkit;
  return target == unreadable_in_toolkit || target == present_in_toolkit;
}

IncludeGraph::Targets IncludeGraph::without_toolkit(const Targets& results) const {
  Targets left;
  bool is_empty = true;
  for (const Target target : results) {
    if (leads_into_toolkit(target)) continue;
    if (target == end_of_lookup && is_empty) left.push_back(absent);
    left.push_back(target);
    is_empty = target == end_of_lookup;
  }
  return left;
}

bool IncludeGraph::uses_macros_of_toolkit(const Node& node) const {
  const auto& computed = node.file->directives.computed;
  return std::ranges::any_of(computed, [this](const ComputedLookup& lookup) {
    return !lookup.is_cut && macros_.uses_toolkit(lookup.operand);
  });
}

std::optional<Digest> IncludeGraph::digest_without_toolkit() const {
  if (has_everything_ || toolkit_.are_mixed()) return std::nullopt;
  base::ByteWriter writer;
  writer.text("kiln dependencies without toolkit 1");
  // The files of the user that those of the user lead to, numbered in the order in which they are named.
  constexpr Target unknown = -1;
  std::vector<Target> numbers(nodes_.size(), unknown);
  std::unordered_map<std::size_t, Target> same_files;
  std::vector<std::size_t> order = {0};
  numbers[0] = 0;
  const auto number_of = [&](Target target) {
    if (target < 0) return target;
    Target& number = numbers[static_cast<std::size_t>(target)];
    if (number == unknown) {
      number = static_cast<Target>(order.size());
      order.push_back(static_cast<std::size_t>(target));
    }
    return number;
  };
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Node& node = nodes_[order[i]];
    if (uses_macros_of_toolkit(node)) return std::nullopt;
    writer.raw(node.file->digest.bytes);
    // The source is no file.
    if (i != 0) writer.number(same_files.try_emplace(node.same_file, static_cast<Target>(i)).first->second);
    for (const auto* results : {&node.results, &node.computed_results}) {
      const Targets left = without_toolkit(*results);
      writer.number(static_cast<std::uint64_t>(left.size()));
      for (const Target target : left) writer.number(number_of(target));
    }
  }
  // A header of the toolkit may include a file of the user, or ask whether it exists. Another machine cannot know
  // that, so the digest must cover the file anyway.
  const auto is_covered = [&](Target target) {
    if (target < 0) return target != unreadable && target != present;
    return leads_into_toolkit(target) || numbers[static_cast<std::size_t>(target)] != unknown;
  };
  for (const Node& node : nodes_)
    if (node.is_toolkit &&
        !(std::ranges::all_of(node.results, is_covered) && std::ranges::all_of(node.computed_results, is_covered)))
      return std::nullopt;
  return base::sha256(writer.bytes());
}

}  // namespace kiln::key
