#include "key/include_graph.hpp"

#include <algorithm>
#include <utility>

#include <sys/stat.h>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/sha256.hpp"
#include "base/try.hpp"
#include "key/macros.hpp"

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
    : search_(search), defines_(defines) {
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
    KILN_TRY(answer_all());
    KILN_TRY(answer_computed());
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

Result<void> IncludeGraph::answer_all() {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const auto file = nodes_[i].file;
    if (!nodes_[i].answers.empty()) continue;
    std::vector<Answer> answers;
    for (const Lookup& lookup : file->directives.lookups) KILN_TRY(answer(i, lookup, answers));
    nodes_[i].answers = std::move(answers);
  }
  return {};
}

Result<void> IncludeGraph::answer_computed() {
  const auto computes = [](const Node& node) { return !node.file->directives.computed.empty(); };
  if (std::ranges::none_of(nodes_, computes)) return {};
  Macros macros(defines_);
  for (const Node& node : nodes_) macros.add(find_definitions(KILN_TRY(text_of(node))));
  const std::size_t count = nodes_.size();
  for (std::size_t i = 0; i < count; ++i) {
    const auto file = nodes_[i].file;
    std::vector<Answer> answers;
    for (const ComputedLookup& computed : file->directives.computed) {
      const auto names = macros.header_names(computed.operand);
      if (!names && computed.kind != LookupKind::exists) KILN_TRY(add_everything(nodes_[i], computed.operand));
      if (!names) continue;
      for (const HeaderName& name : *names) KILN_TRY(answer(i, {computed.kind, name.quoted, name.name}, answers));
    }
    nodes_[i].computed_answers = std::move(answers);
  }
  return {};
}

Result<void> IncludeGraph::add_everything(const Node& node, const std::string& operand) {
  if (has_everything_) return {};
  if (!search_.working_folder.empty())
    return Error(
        ErrorCode::invalid_request,
        fmt::format(
            "{} includes {}, whose name depends on macros that only the compiler knows; include the file by "
            "its name",
            node.name.empty() ? "the source" : node.name, operand));
  has_everything_ = true;
  observations_.complete = false;
  for (const auto& [name, text] : search_.headers) KILN_TRY(answer_given(name));
  for (const auto& folder : search_.folders) {
    std::vector<std::string> names;
    std::error_code error;
    std::filesystem::recursive_directory_iterator entries(
        folder, std::filesystem::directory_options::skip_permission_denied, error);
    for (const auto end = std::filesystem::recursive_directory_iterator(); !error && entries != end;
         entries.increment(error)) {
      names.push_back(entries->path().string());
      if (names.size() > max_nodes) return too_many_files();
    }
    std::ranges::sort(names);
    for (const std::string& name : names) KILN_TRY(answer_at(name, LookupKind::include));
  }
  return {};
}

Result<void> IncludeGraph::answer(std::size_t from, const Lookup& lookup, std::vector<Answer>& answers) {
  const std::size_t before = answers.size();
  if (lookup.name.find('\0') != std::string::npos) {
    answers.push_back(absent);
  } else if (lookup.name.starts_with('/')) {
    answers.push_back(KILN_TRY(answer_at(lookup.name, lookup.kind)));
  } else {
    if (!search_.working_folder.empty())
      answers.push_back(KILN_TRY(answer_at(search_.working_folder.string() + '/' + lookup.name, lookup.kind)));
    KILN_TRY(search(from, lookup, answers));
  }
  const bool is_missing = std::all_of(answers.begin() + static_cast<std::ptrdiff_t>(before), answers.end(),
                                      [](Answer answer) { return answer == absent; });
  if (is_missing && lookup.kind != LookupKind::exists) missing_.insert(lookup.name);
  answers.push_back(end_of_lookup);
  return {};
}

Result<void> IncludeGraph::search(std::size_t from, const Lookup& lookup, std::vector<Answer>& answers) {
  const std::size_t before = answers.size();
  // Compilers differ in how they go on after a file that they cannot read.
  const auto is_final = [&](Answer answer) {
    if (answer != absent) answers.push_back(answer);
    return answer != absent && answer != unreadable && lookup.kind != LookupKind::include_next;
  };
  const bool lacks_suffix = !search_.other_suffix.empty() &&
                            lookup.name.find('.', lookup.name.find_last_of('/') + 1) == std::string::npos;
  const auto find_in = [&](const std::string& place) -> Result<bool> {
    if (is_final(KILN_TRY(answer_at(place + lookup.name, lookup.kind)))) return true;
    return lacks_suffix && is_final(KILN_TRY(answer_at(place + lookup.name + search_.other_suffix, lookup.kind)));
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
    Answer given = KILN_TRY(answer_given(name.string()));
    if (given >= 0 && lookup.kind == LookupKind::exists) given = present;
    if (is_final(given) && !goes_up) return {};
  }
  for (const std::string& place : places_)
    if (KILN_TRY(find_in(place))) return {};
  if (answers.size() == before) answers.push_back(absent);
  return {};
}

Result<IncludeGraph::Answer> IncludeGraph::answer_given(const std::string& name) {
  const auto header = search_.headers.find(name);
  if (header == search_.headers.end()) return absent;
  const auto known = answers_.find("given:" + name);
  if (known != answers_.end()) return known->second;
  const FileId id(given_device, static_cast<std::uint64_t>(std::distance(search_.headers.begin(), header)));
  Node node{.name = name,
            .is_given = true,
            .file = std::make_shared<const ScannedFile>(
                ScannedFile{base::sha256(header->second), find_directives(header->second)}),
            .text = header->second};
  const auto index = static_cast<Answer>(KILN_TRY(add_node(std::move(node), id, id)));
  answers_.emplace("given:" + name, index);
  return index;
}

Result<IncludeGraph::Answer> IncludeGraph::answer_at(const std::string& path, LookupKind kind) {
  if (kind == LookupKind::exists) return answer_existence(path);
  const auto known = answers_.find(path);
  if (known != answers_.end()) return known->second;
  auto read = FileIndex::of_process().read(path, observations_.time);
  Answer answer = absent;
  if (!read && read.error().code() != ErrorCode::io) return std::move(read).error();
  if (!read) {
    answer = unreadable;
    // Access rights of parent folders are not observed.
    observations_.complete = false;
  } else if (!*read) {
    observations_.absent.push_back(path);
  } else {
    FileIndex::Read& found = **read;
    const FileId id(found.signature.device, found.signature.inode);
    observations_.files.push_back({path, found.signature, found.file->digest});
    answer = static_cast<Answer>(
        KILN_TRY(add_node({.name = path, .file = std::move(found.file), .text = std::move(found.text)}, id,
                          folder_id(parent_of(path)))));
  }
  answers_.emplace(path, answer);
  return answer;
}

IncludeGraph::Answer IncludeGraph::answer_existence(const std::string& path) {
  const auto known = existing_.find(path);
  if (known != existing_.end()) return known->second ? present : absent;
  struct stat status {};
  const bool exists = ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
  (exists ? observations_.present : observations_.absent).push_back(path);
  existing_.emplace(path, exists);
  return exists ? present : absent;
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

Dependencies IncludeGraph::dependencies() const {
  Dependencies result;
  base::ByteWriter writer;
  writer.text("kiln dependencies 1");
  for (const Node& node : nodes_) {
    writer.raw(node.file->digest.bytes);
    writer.number(static_cast<std::uint64_t>(node.same_file));
    for (const auto* answers : {&node.answers, &node.computed_answers}) {
      writer.number(static_cast<std::uint64_t>(answers->size()));
      for (const Answer answer : *answers) writer.number(answer);
    }
    if (&node != &nodes_.front()) result.files.push_back({node.name, node.file->digest});
  }
  // Names matter if every file of a folder counts: a computed name may lead to any of them.
  if (has_everything_)
    for (const auto& folder : search_.folders)
      for (const Node& node : nodes_) {
        const auto name = std::filesystem::path(node.name).lexically_relative(folder);
        if (!name.empty() && *name.begin() != "..") writer.text(name.string());
      }
  result.digest = base::sha256(writer.bytes());
  result.missing.assign(missing_.begin(), missing_.end());
  return result;
}

}  // namespace kiln::key
