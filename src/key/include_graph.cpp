#include "key/include_graph.hpp"

#include <algorithm>
#include <utility>

#include <sys/stat.h>

#include <fmt/format.h>

#include "base/sha256.hpp"
#include "base/try.hpp"

namespace kiln::key {
namespace {

constexpr std::size_t max_nodes = 100'000;
/// Marks folders of given headers, which are on no device.
constexpr std::uint64_t given_device = ~std::uint64_t{0};

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

Error too_many_files() {
  return Error(ErrorCode::invalid_request, fmt::format("the source can include more than {} files", max_nodes));
}

}  // namespace

IncludeGraph::IncludeGraph(const IncludeSearch& search, const std::map<std::string, std::string>& defines)
    : search_(search), toolkit_(search.folders, search.toolkit_folders), macros_(defines) {
  observations_.time = std::chrono::system_clock::now();
  for (const auto& folder : search_.folders) places_.push_back(folder.string() + '/');
}

Result<void> IncludeGraph::build(std::string_view source) {
  KILN_TRY(check_given_names());
  source_ = source;
  nodes_.push_back(
      {.name = {}, .file = std::make_shared<const ScannedFile>(ScannedFile{{}, find_directives(source)})});
  // Files that computed names lead to may define further macros.
  for (std::size_t before = 0; before != nodes_.size();) {
    before = nodes_.size();
    KILN_TRY(follow_names());
    KILN_TRY(follow_computed_names());
  }
  return {};
}

Result<void> IncludeGraph::check_given_names() const {
  const auto invalid = [](const std::string& name, std::string_view why) {
    return Error(ErrorCode::invalid_request, fmt::format("the header \"{}\" {}", name, why));
  };
  for (const auto& [name, text] : search_.headers) {
    const std::filesystem::path path(name);
    if (name.empty() || name.find('\0') != std::string::npos || name.back() == '/' || path.is_absolute() ||
        path.lexically_normal().string() != name || *path.begin() == ".." || name == ".")
      return invalid(name, "needs a relative name without \".\" and \"..\"");
    for (auto folder = path.parent_path(); !folder.empty(); folder = folder.parent_path())
      if (search_.headers.contains(folder.string()))
        return invalid(name, fmt::format("is in \"{}\", which is another header", folder.string()));
  }
  return {};
}

Result<void> IncludeGraph::follow_names() {
  for (; followed_ < nodes_.size(); ++followed_) {
    const auto file = nodes_[followed_].file;
    Targets results;
    for (const Lookup& lookup : file->directives.lookups) KILN_TRY(look_up(followed_, lookup, results));
    nodes_[followed_].results = std::move(results);
  }
  return {};
}

Result<void> IncludeGraph::follow_computed_names() {
  const auto computes = [](const Node& node) { return !node.file->directives.computed.empty(); };
  if (std::ranges::none_of(nodes_, computes)) return {};
  KILN_TRY(add_definitions());
  const std::size_t count = nodes_.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (!computes(nodes_[i])) continue;
    const auto file = nodes_[i].file;
    std::vector<std::shared_ptr<const Macros::Names>> names;
    for (const ComputedLookup& lookup : file->directives.computed)
      names.push_back(lookup.is_cut ? nullptr : macros_.header_names(lookup.operand));
    if (names == nodes_[i].computed_names) continue;
    Targets results;
    for (std::size_t j = 0; j < names.size(); ++j) {
      const auto& [kind, operand, is_cut] = file->directives.computed[j];
      if (!names[j] && !tests_existence(kind)) KILN_TRY(add_everything(i, operand));
      if (!names[j]) continue;
      for (const HeaderName& name : *names[j]) KILN_TRY(look_up(i, {kind, name.quoted, name.name}, results));
    }
    nodes_[i].computed_names = std::move(names);
    nodes_[i].computed_results = std::move(results);
  }
  return {};
}

Result<void> IncludeGraph::add_definitions() {
  for (; defined_ < nodes_.size(); ++defined_) {
    Node& node = nodes_[defined_];
    if (node.file->directives.has_definitions)
      macros_.add(find_definitions(KILN_TRY(text_of(node))),
                  node.is_toolkit ? Macros::Origin::toolkit : Macros::Origin::user);
    node.text.reset();
  }
  return {};
}

Result<void> IncludeGraph::add_everything(std::size_t from, const std::string& operand) {
  if (!search_.working_folder.empty())
    return Error(
        ErrorCode::invalid_request,
        fmt::format(
            "{} includes {}, whose name depends on macros that only the compiler knows; include the file by "
            "its name",
            from == 0 ? "the source" : nodes_[from].name, operand));
  if (!has_everything_) {
    has_everything_ = true;
    observations_.complete = false;
    for (const auto& [name, text] : search_.headers) {
      everything_.text(name);
      everything_.number(KILN_TRY(look_up_given(name)));
    }
    for (const std::string& place : places_) KILN_TRY(add_folder(place));
  }
  // The name may be in "quotes".
  if (from != 0 && !nodes_[from].is_given) KILN_TRY(add_folder(parent_of(nodes_[from].name) + '/'));
  return {};
}

Result<void> IncludeGraph::add_folder(const std::string& path) {
  observations_.folders.push_back(path);
  const auto [known, is_new] = listed_folders_.try_emplace(folder_id(path), listed_folders_.size());
  everything_.number(static_cast<std::uint64_t>(known->second));
  if (!is_new) return {};
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entries(path, std::filesystem::directory_options::skip_permission_denied,
                                              error);
  for (const auto end = std::filesystem::directory_iterator(); !error && entries != end; entries.increment(error)) {
    names.push_back(entries->path().filename().string());
    if (++listed_names_ > max_nodes) return too_many_files();
  }
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    return Error(ErrorCode::io, fmt::format("cannot list {}: {}", path, error.message()));
  std::ranges::sort(names);
  everything_.number(static_cast<std::uint64_t>(names.size()));
  for (const std::string& name : names) {
    const std::string file = path + name;
    struct stat status {};
    everything_.text(name);
    if (::stat(file.c_str(), &status) != 0 || !(S_ISDIR(status.st_mode) || S_ISREG(status.st_mode))) {
      everything_.number(absent);
    } else if (S_ISDIR(status.st_mode)) {
      KILN_TRY(add_folder(file + '/'));
    } else if (static_cast<std::uint64_t>(status.st_size) > FileIndex::max_file_bytes) {
      // No source includes it, or the request would be invalid.
      write(everything_, FileSignature::of(status));
    } else {
      everything_.number(in_key(KILN_TRY(look_up_at(file, LookupKind::include))));
    }
  }
  return {};
}

Result<void> IncludeGraph::look_up(std::size_t from, const Lookup& lookup, Targets& results) {
  const std::size_t before = results.size();
  if (lookup.name.find('\0') != std::string::npos) {
    results.push_back(absent);
  } else if (lookup.name.starts_with('/')) {
    observations_.absolute.insert(lookup.name);
    results.push_back(KILN_TRY(look_up_at(lookup.name, lookup.kind)));
  } else {
    if (!search_.working_folder.empty()) {
      results.push_back(KILN_TRY(look_up_at(search_.working_folder.string() + '/' + lookup.name, lookup.kind)));
      if (results.back() != absent) observations_.used_working_folder = true;
    }
    KILN_TRY(search(from, lookup, results));
  }
  const bool is_missing = std::all_of(results.begin() + static_cast<std::ptrdiff_t>(before), results.end(),
                                      [](Target target) { return target == absent; });
  if (is_missing && !tests_existence(lookup.kind)) missing_.insert(lookup.name);
  results.push_back(end_of_lookup);
  return {};
}

Result<void> IncludeGraph::search(std::size_t from, const Lookup& lookup, Targets& results) {
  const std::size_t before = results.size();
  // Compilers differ in how they go on after a file that they cannot read.
  const auto is_final = [&](Target target) {
    if (target != absent) results.push_back(target);
    return target != absent && target != unreadable && target != unreadable_in_toolkit &&
           !starts_in_a_later_folder(lookup.kind);
  };
  const bool lacks_suffix = !search_.other_suffix.empty() &&
                            lookup.name.find('.', lookup.name.find_last_of('/') + 1) == std::string::npos;
  const auto find_in = [&](const std::string& place) -> Result<bool> {
    if (is_final(KILN_TRY(look_up_at(place + lookup.name, lookup.kind)))) return true;
    return lacks_suffix && is_final(KILN_TRY(look_up_at(place + lookup.name + search_.other_suffix, lookup.kind)));
  };
  const std::string folder = parent_of(nodes_[from].name);
  const bool is_given = nodes_[from].is_given;
  if (lookup.quoted && from != 0 && !is_given && KILN_TRY(find_in(folder + '/'))) return {};
  // The headers are files of a folder when a compiler reads them, in which ".." may lead through folders that do
  // not exist.
  const bool goes_up = lookup.name.find("..") != std::string::npos;
  for (const bool beside : {true, false}) {
    if (search_.headers.empty() || (beside && !(lookup.quoted && is_given))) continue;
    const auto name = (std::filesystem::path(beside ? folder : "") / lookup.name).lexically_normal();
    if (beside && !name.empty() && *name.begin() == "..")
      return Error(ErrorCode::invalid_request,
                   fmt::format("the header \"{}\" includes \"{}\", which is outside of the given headers",
                               nodes_[from].name, lookup.name));
    Target given = KILN_TRY(look_up_given(name.string()));
    if (given >= 0 && tests_existence(lookup.kind)) given = present;
    if (is_final(given) && !goes_up) return {};
  }
  for (const std::string& place : places_)
    if (KILN_TRY(find_in(place))) return {};
  if (results.size() == before) results.push_back(absent);
  return {};
}

Result<IncludeGraph::Target> IncludeGraph::look_up_given(const std::string& name) {
  const auto header = search_.headers.find(name);
  if (header == search_.headers.end()) return absent;
  const auto known = targets_.find("given:" + name);
  if (known != targets_.end()) return known->second;
  const FileId id(given_device, static_cast<std::uint64_t>(std::distance(search_.headers.begin(), header)));
  Node node{.name = name,
            .is_given = true,
            .file = std::make_shared<const ScannedFile>(
                ScannedFile{base::sha256(header->second), find_directives(header->second)}),
            .text = header->second};
  const auto index = static_cast<Target>(KILN_TRY(add_node(std::move(node), id, id)));
  targets_.emplace("given:" + name, index);
  return index;
}

Result<IncludeGraph::Target> IncludeGraph::look_up_at(const std::string& path, LookupKind kind) {
  if (tests_existence(kind)) return look_up_existence(path);
  const auto known = targets_.find(path);
  if (known != targets_.end()) return known->second;
  auto found = KILN_TRY(FileIndex::of_process().read(path, observations_.time));
  Target target = absent;
  if (!found) {
    observations_.absent.push_back(path);
  } else if (found->file == nullptr) {
    target = toolkit_.contains(path) ? unreadable_in_toolkit : unreadable;
    observations_.unreadable.push_back(path);
    // Access rights of parent folders are not observed.
    observations_.complete = false;
  } else {
    const FileId id(found->signature.device, found->signature.inode);
    observations_.files.push_back({path, found->signature, found->file->digest});
    if (!found->file->directives.has_definitions) found->text.reset();
    target = static_cast<Target>(KILN_TRY(add_node({.name = path,
                                                    .is_toolkit = toolkit_.contains(path),
                                                    .file = std::move(found->file),
                                                    .text = std::move(found->text)},
                                                   id, folder_id(parent_of(path)))));
  }
  targets_.emplace(path, target);
  return target;
}

IncludeGraph::Target IncludeGraph::look_up_existence(const std::string& path) {
  const auto known = existing_.find(path);
  if (known != existing_.end()) return known->second;
  struct stat status {};
  Target target = absent;
  if (::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode))
    target = toolkit_.contains(path) ? present_in_toolkit : present;
  (target == absent ? observations_.absent : observations_.present).push_back(path);
  existing_.emplace(path, target);
  return target;
}

Result<std::size_t> IncludeGraph::add_node(Node node, const FileId& file, const FileId& folder) {
  const auto [known, is_new] = known_nodes_.try_emplace({file, folder}, nodes_.size());
  if (!is_new) return known->second;
  if (nodes_.size() > max_nodes) return too_many_files();
  node.same_file = same_files_.try_emplace(file, same_files_.size()).first->second;
  nodes_.push_back(std::move(node));
  return known->second;
}

IncludeGraph::FileId IncludeGraph::folder_id(const std::string& path) {
  const auto known = folder_ids_.find(path);
  if (known != folder_ids_.end()) return known->second;
  struct stat status {};
  if (::stat(path.empty() ? "/" : path.c_str(), &status) != 0) status = {};
  return folder_ids_.emplace(path, FileId(status.st_dev, status.st_ino)).first->second;
}

Result<std::string> IncludeGraph::text_of(const Node& node) const {
  if (node.name.empty()) return source_;
  if (node.text) return *node.text;
  auto text = KILN_TRY(read_text(node.name));
  if (!text || base::sha256(*text) != node.file->digest)
    return Error(ErrorCode::io, fmt::format("{} changed while it was read; make the request again", node.name));
  return *std::move(text);
}

}  // namespace kiln::key
