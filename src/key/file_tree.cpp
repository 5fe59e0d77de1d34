#include "key/file_tree.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <memory>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/file.hpp"
#include "base/try.hpp"
#include "key/dependencies.hpp"
#include "key/include_graph.hpp"
#include "key/toolkit.hpp"

namespace kiln::key {
namespace {

using Path = std::filesystem::path;

/// Bounds the files, folders and links that a hostile record creates, and their size.
constexpr std::size_t max_tree_names = 400'000;
constexpr std::uint64_t max_tree_bytes = std::uint64_t{4} << 30;

// Canonical paths are those of realpath(), but with "" for the root folder, so that '/' separates all names.

std::string_view parent_folder(std::string_view path) {
  return path.substr(0, std::min(path.rfind('/'), path.size()));
}

/// Whether `path` is `folder` or below it. Both are canonical.
bool is_in(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

std::optional<std::string> canonical_folder(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(path.c_str(), nullptr), &std::free);
  struct stat status {};
  if (!resolved || ::stat(resolved.get(), &status) != 0 || !S_ISDIR(status.st_mode)) return std::nullopt;
  std::string canonical = resolved.get();
  if (canonical == "/") canonical.clear();
  return canonical;
}

std::string without_slash(const std::string& path) { return path.substr(0, path.find_last_not_of('/') + 1); }

/// The first folder on the way to a file that this process may not search; nothing if it may search all.
std::optional<std::string> unsearchable_folder(const std::string& path) {
  for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    struct stat status {};
    if (::stat((path.substr(0, slash) + "/.").c_str(), &status) != 0)
      return errno == EACCES ? std::optional(path.substr(0, slash)) : std::nullopt;
  }
  return std::nullopt;
}

Error unsearchable(const std::string& folder) {
  return Error(ErrorCode::outdated, fmt::format("the folder {} cannot be searched", folder));
}

std::size_t names_in(const FileTree& tree) { return tree.folders.size() + tree.files.size() + tree.links.size(); }

Error outdated(const Request& request) {
  return Error(ErrorCode::outdated, fmt::format("a file that \"{}\" can include was changed", request.name()));
}

/// Follows the paths that a search looked up, and notes the folders and links on the way.
class Capture {
 public:
  explicit Capture(const Request& request) : request_(request), toolkit_(toolkit_folders(request.language())) {}

  Result<CapturedTree> run();

 private:
  using Kind = RecordedFile::Kind;
  /// A folder that is searched. `prefix` is that of all paths that are looked up in it.
  struct Place {
    std::string prefix;
    std::string canonical;
    /// The index of the toolkit's folder, if it is one.
    std::optional<std::uint32_t> toolkit = {};
  };

  void add_places(const std::vector<Path>& folders);
  void add_working_folder(const Path& folder);
  void enter_places();
  const Place* place_of(const std::string& path) const;
  /// The canonical path of a folder; nothing if there is none. `path` has no '/' at its end.
  const std::optional<std::string>& enter(const std::string& path);
  std::optional<std::string> find_folder(const std::string& path);
  void add_outside(const std::string& path, const Place* place, const Digest& digest);
  Result<void> add_file(const std::string& path, RecordedFile file);
  Result<void> add_stored(const Observations::File& file);
  Result<void> add_observed(const Observations& observations);
  Result<CapturedTree> finish();

  const Request& request_;
  const std::vector<Path> toolkit_;
  std::vector<Place> places_;
  std::unordered_map<std::string, std::optional<std::string>> entered_;
  std::set<std::string> folders_;
  std::map<std::string, std::string> links_;
  std::map<std::string, RecordedFile> files_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> same_files_;
  std::uint64_t bytes_ = 0;
  CapturedTree result_;
};

Result<CapturedTree> Capture::run() {
  const auto search = search_of(request_.language(), request_.headers(), request_.include_folders());
  IncludeGraph graph(search, request_.defines());
  KILN_TRY(graph.build(request_.source()));
  if (graph.dependencies().digest != *request_.included()) return outdated(request_);
  const Observations observations = graph.take_observations();
  add_places(search.folders);
  if (observations.used_working_folder) add_working_folder(search.working_folder);
  enter_places();
  KILN_TRY(add_observed(observations));
  return finish();
}

void Capture::add_places(const std::vector<Path>& folders) {
  // The request has those of the toolkit at the end.
  const bool has_toolkit =
      folders.size() >= toolkit_.size() && std::equal(toolkit_.rbegin(), toolkit_.rend(), folders.rbegin());
  const std::size_t own = folders.size() - (has_toolkit ? toolkit_.size() : 0);
  std::vector<std::optional<std::string>> toolkit;
  for (const Path& folder : toolkit_) toolkit.push_back(canonical_folder(folder));
  for (std::size_t i = 0; i < folders.size(); ++i) {
    auto canonical = canonical_folder(folders[i]);
    if (!canonical) continue;
    const auto same = std::ranges::find(toolkit, canonical);
    std::optional<std::uint32_t> index;
    if (same != toolkit.end()) index = static_cast<std::uint32_t>(same - toolkit.begin());
    if (i < own) result_.tree.include_folders.push_back({index, index ? std::string() : *canonical});
    places_.push_back({folders[i].string() + '/', *std::move(canonical), index});
  }
}

void Capture::add_working_folder(const Path& folder) {
  auto canonical = canonical_folder(folder);
  if (!canonical) return;
  result_.tree.working_folder = canonical;
  places_.push_back({folder.string() + '/', *std::move(canonical)});
}

void Capture::enter_places() {
  for (const Place& place : places_) {
    if (!place.toolkit) folders_.insert(place.canonical);
    std::string path = place.prefix;
    while (path.ends_with('/')) path.pop_back();
    // The way to a place in another place may have links, which paths that are looked up in the other one follow.
    const auto contains = [&](const Place& other) { return path.starts_with(other.prefix); };
    if (std::ranges::none_of(places_, contains)) entered_.insert_or_assign(std::move(path), place.canonical);
  }
}

const Capture::Place* Capture::place_of(const std::string& path) const {
  const Place* best = nullptr;
  for (const Place& place : places_)
    if (path.starts_with(place.prefix) && (best == nullptr || place.prefix.size() > best->prefix.size()))
      best = &place;
  return best;
}

const std::optional<std::string>& Capture::enter(const std::string& path) {
  const auto known = entered_.find(path);
  if (known != entered_.end()) return known->second;
  auto found = find_folder(path);
  if (found) folders_.insert(*found);
  return entered_.insert_or_assign(path, std::move(found)).first->second;
}

std::optional<std::string> Capture::find_folder(const std::string& path) {
  if (path.empty()) return path;
  const auto parent = enter(std::string(parent_folder(path)));
  if (!parent) return std::nullopt;
  const std::string name = path.substr(path.rfind('/') + 1);
  if (name.empty() || name == ".") return parent;
  if (name == "..") return std::string(parent_folder(*parent));
  std::string full = *parent + '/' + name;
  struct stat status {};
  if (::lstat(full.c_str(), &status) != 0) return std::nullopt;
  if (S_ISDIR(status.st_mode)) return full;
  auto target = S_ISLNK(status.st_mode) ? canonical_folder(full) : std::nullopt;
  if (target) links_.insert_or_assign(std::move(full), *target);
  return target;
}

void Capture::add_outside(const std::string& path, const Place* place, const Digest& digest) {
  OutsideFile file{.path = path, .digest = digest};
  if (place != nullptr) {
    file.toolkit = place->toolkit;
    file.path.erase(0, place->prefix.size());
  }
  result_.tree.outside.push_back(std::move(file));
}

Result<void> Capture::add_file(const std::string& path, RecordedFile file) {
  const auto& folder = enter(std::string(parent_folder(path)));
  if (!folder) return outdated(request_);
  file.path = *folder + '/' + path.substr(path.rfind('/') + 1);
  std::string canonical = file.path;
  files_.try_emplace(std::move(canonical), std::move(file));
  return {};
}

Result<void> Capture::add_stored(const Observations::File& file) {
  const std::pair id(file.signature.device, file.signature.inode);
  const auto number = same_files_.try_emplace(id, same_files_.size()).first->second;
  bytes_ += file.signature.bytes;
  result_.paths.try_emplace(file.digest, file.path);
  return add_file(file.path, {.kind = Kind::stored, .same_file = number, .digest = file.digest});
}

Result<void> Capture::add_observed(const Observations& observations) {
  const auto is_outside = [](const Place* place) { return place == nullptr || place->toolkit; };
  for (const auto& file : observations.files) {
    const Place* place = place_of(file.path);
    // An absolute path leads to the original file, also if an include folder contains it.
    const bool is_absolute = observations.absolute.contains(file.path);
    if (is_absolute) add_outside(file.path, nullptr, file.digest);
    if (!is_outside(place))
      KILN_TRY(add_stored(file));
    else if (!is_absolute)
      add_outside(file.path, place, file.digest);
  }
  // The first kind of a path counts: __has_include also finds a file that cannot be read.
  for (const std::string& path : observations.unreadable) {
    const Place* place = place_of(path);
    if (place != nullptr && place->toolkit) continue;
    if (const auto folder = unsearchable_folder(path)) return unsearchable(*folder);
    if (place != nullptr) KILN_TRY(add_file(path, {.kind = Kind::unreadable}));
  }
  for (const std::string& path : observations.present)
    if (!is_outside(place_of(path))) KILN_TRY(add_file(path, {.kind = Kind::present}));
  for (const std::string& path : observations.folders) {
    if (is_outside(place_of(path))) continue;
    if (::faccessat(AT_FDCWD, path.c_str(), R_OK | X_OK, AT_EACCESS) != 0 && errno == EACCES)
      return unsearchable(without_slash(path));
    enter(std::string(parent_folder(path)));
  }
  // The folders through which "../name" leads must be in the tree: outside of it, there may be such a file.
  for (const std::string& path : observations.absent)
    if (!is_outside(place_of(path))) enter(std::string(parent_folder(path)));
  return {};
}

Result<CapturedTree> Capture::finish() {
  std::string root = folders_.empty() ? std::string() : *folders_.begin();
  for (const std::string& path : folders_)
    while (!is_in(path, root)) root = parent_folder(root);
  for (const auto& [path, target] : links_)
    while (!is_in(path, root)) root = parent_folder(root);
  const auto relative = [&](const std::string& path) {
    return path.size() == root.size() ? std::string() : path.substr(root.size() + 1);
  };
  FileTree& tree = result_.tree;
  for (const std::string& folder : folders_) tree.folders.push_back(relative(folder));
  for (auto& [path, file] : files_) {
    file.path = relative(path);
    tree.files.push_back(std::move(file));
  }
  for (const auto& [path, target] : links_) tree.links.emplace(relative(path), relative(target));
  for (RecordedFolder& folder : tree.include_folders)
    if (!folder.toolkit) folder.path = relative(folder.path);
  if (tree.working_folder) tree.working_folder = relative(*tree.working_folder);
  if (names_in(tree) > max_tree_names || bytes_ > max_tree_bytes)
    return Error(ErrorCode::outdated, "its files are too many or too large");
  return std::move(result_);
}

/// Whether the path stays below the folder that it is appended to.
bool is_inside(std::string_view path) {
  if (path.find('\0') != std::string_view::npos) return false;
  for (;;) {
    const std::string_view name = path.substr(0, path.find('/'));
    if (name.empty() || name == "." || name == "..") return false;
    if (name.size() == path.size()) return true;
    path.remove_prefix(name.size() + 1);
  }
}

bool is_inside_or_empty(std::string_view path) { return path.empty() || is_inside(path); }

/// Fails if a tree has paths that leave its root.
Result<void> check(const FileTree& tree) {
  const bool is_valid =
      std::ranges::all_of(tree.folders, is_inside_or_empty) &&
      std::ranges::all_of(tree.files, is_inside, &RecordedFile::path) &&
      std::ranges::all_of(
          tree.links, [](const auto& link) { return is_inside(link.first) && is_inside_or_empty(link.second); }) &&
      std::ranges::all_of(tree.include_folders, is_inside_or_empty, &RecordedFolder::path) &&
      is_inside_or_empty(tree.working_folder.value_or(""));
  if (!is_valid) return Error(ErrorCode::damaged, "it has a file outside of its folder");
  return {};
}

Result<void> make_folder(const Path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return Error(ErrorCode::io, fmt::format("cannot create {}: {}", path.string(), error.message()));
  return {};
}

Result<void> write_new_file(const Path& path, std::span<const std::byte> contents, mode_t mode) {
  base::FileHandle file(
      base::FileSystem::system().open(AT_FDCWD, path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file || !base::write_all(file, contents) || !file.close()) return base::system_error("write", path);
  return {};
}

}  // namespace

Result<CapturedTree> capture_tree(const Request& request) {
  if (request.included() == nullptr) return CapturedTree{};
  return Capture(request).run();
}

Result<void> unpack_tree(const FileTree& tree, const Path& root,
                         const std::function<Result<std::vector<std::byte>>(const Digest&)>& contents) {
  KILN_TRY(check(tree));
  if (names_in(tree) > max_tree_names) return Error(ErrorCode::damaged, "it has a request with too many files");
  KILN_TRY(make_folder(root));
  std::error_code error;
  if (!std::filesystem::is_empty(root, error) || error)
    return Error(ErrorCode::io, fmt::format("{} is not an empty folder", root.string()));
  // All folders before the first link: nothing is written through a link.
  for (const std::string& folder : tree.folders) KILN_TRY(make_folder(root / folder));
  for (const RecordedFile& file : tree.files) KILN_TRY(make_folder((root / file.path).parent_path()));
  for (const auto& [path, target] : tree.links) KILN_TRY(make_folder((root / path).parent_path()));
  std::map<std::uint64_t, Path> first_names;
  std::uint64_t bytes = 0;
  for (const RecordedFile& file : tree.files) {
    Path path = root / file.path;
    if (file.kind != RecordedFile::Kind::stored) {
      KILN_TRY(write_new_file(path, {}, file.kind == RecordedFile::Kind::unreadable ? 0 : 0600));
      continue;
    }
    const auto [first, is_new] = first_names.try_emplace(file.same_file, path);
    if (!is_new) {
      if (::link(first->second.c_str(), path.c_str()) != 0) return base::system_error("link", path);
      continue;
    }
    const auto text = KILN_TRY(contents(file.digest));
    bytes += text.size();
    if (bytes > max_tree_bytes) return Error(ErrorCode::damaged, "it has a request with too large files");
    KILN_TRY(write_new_file(path, text, 0600));
  }
  for (const auto& [path, target] : tree.links) {
    const Path link = root / path;
    const Path relative = (root / target).lexically_relative(link.parent_path());
    if (::symlink(relative.c_str(), link.c_str()) != 0) return base::system_error("link", link);
  }
  return {};
}

std::optional<Path> unpacked_path(const RecordedFolder& folder, const Path& root,
                                  const std::vector<Path>& toolkit) {
  if (!folder.toolkit) return folder.path.empty() ? root : root / folder.path;
  if (*folder.toolkit >= toolkit.size()) return std::nullopt;
  return folder.path.empty() ? toolkit[*folder.toolkit] : toolkit[*folder.toolkit] / folder.path;
}

}  // namespace kiln::key
