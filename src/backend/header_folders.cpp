#include "backend/header_folders.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>

#include <unistd.h>

#include "base/try.hpp"
#include "key/include_resolver.hpp"

namespace kiln::backend {
namespace {

/// Replaces every `from` in the text that no digit follows: links in the temporary folder are called 1, 2, ….
void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    const std::size_t end = at + from.size();
    const bool is_longer = end < text.size() && text[end] >= '0' && text[end] <= '9';
    if (!is_longer) text.replace(at, from.size(), to);
    at += is_longer ? from.size() : to.size();
  }
}

}  // namespace

Result<HeaderFolders> HeaderFolders::create(const Request& request) {
  HeaderFolders folders;
  const bool needs_scratch =
      !request.headers().empty() ||
      std::ranges::any_of(request.include_folders(), [](const auto& folder) { return !base::is_plain(folder); });
  if (needs_scratch) folders.scratch_.emplace(KILN_TRY(base::ScratchFolder::create()));
  if (!request.headers().empty()) KILN_TRY(folders.write(request));
  for (const auto& folder : request.include_folders()) {
    if (base::is_plain(folder))
      folders.paths_.push_back(folder.string());
    else
      KILN_TRY(folders.link(folder));
  }
  return folders;
}

Result<void> HeaderFolders::write(const Request& request) {
  const auto root = scratch_->path() / "headers";
  paths_.push_back(root.string());
  for (const auto& [name, text] : request.headers()) {
    const auto path = root / name;
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    // Messages and __FILE__ show the name.
    KILN_TRY(base::write_file(path, key::line_directive(key::LineStyle::name, 1, 0, name) + text));
  }
  return {};
}

Result<void> HeaderFolders::link(const std::filesystem::path& folder) {
  const auto path = scratch_->path() / std::to_string(paths_.size());
  if (::symlink(folder.c_str(), path.c_str()) != 0) return base::system_error("link", path);
  paths_.push_back(path.string());
  links_.push_back({path.string(), folder.string()});
  return {};
}

std::string HeaderFolders::with_names(std::string log) const {
  if (!scratch_) return log;
  const std::string prefix = (scratch_->path() / "headers/").string();
  for (std::size_t at = log.find(prefix); at != std::string::npos; at = log.find(prefix, at))
    log.erase(at, prefix.size());
  for (const Link& link : links_) replace_all(log, link.path, link.folder);
  return log;
}

void HeaderFolders::replace_random_names(std::span<std::byte> compiled) const {
  if (!scratch_) return;
  const std::string path = scratch_->path().string();
  std::string stable = path;
  std::fill_n(stable.end() - base::ScratchFolder::random_characters, base::ScratchFolder::random_characters, 'X');
  char* const end = reinterpret_cast<char*>(compiled.data()) + compiled.size();
  const std::boyer_moore_horspool_searcher searcher(path.begin(), path.end());
  for (char* at = reinterpret_cast<char*>(compiled.data()); (at = std::search(at, end, searcher)) != end;)
    at = std::copy(stable.begin(), stable.end(), at);
}

std::vector<std::pair<std::string, std::string>> HeaderFolders::temporary() const {
  std::vector<std::pair<std::string, std::string>> folders;
  if (!scratch_) return folders;
  folders.emplace_back((scratch_->path() / "headers").string(), "");
  for (const Link& link : links_) folders.emplace_back(link.path, link.folder + '/');
  return folders;
}

}  // namespace kiln::backend
