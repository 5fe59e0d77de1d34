#include "key/toolkit.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <unistd.h>

#include "base/dynamic_library.hpp"
#include "base/process.hpp"

namespace kiln::key {
namespace {

using Path = std::filesystem::path;

bool has_file(const Path& folder, const char* name) { return ::access((folder / name).c_str(), R_OK) == 0; }

std::vector<Path> roots_in(std::initializer_list<const char*> variables) {
  std::vector<Path> roots;
  for (const char* variable : variables)
    if (const char* root = base::environment(variable); root != nullptr && *root != '\0')
      if (Path(root).is_absolute()) roots.emplace_back(root);
  return roots;
}

/// The folders in which an NVRTC may have its headers: those of a toolkit (lib64, targets/…/lib), of Debian's
/// package, and of the packages in PyPI, which have one folder for each part of CUDA 12.
std::vector<Path> folders_beside_nvrtc() {
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"})
    if (const auto library = base::DynamicLibrary::open_for_good(name)) {
      const Path folder = library->path().parent_path();
      if (folder.empty()) return {};
      return {(folder / "../include").lexically_normal(), (folder / "../../include").lexically_normal(),
              (folder / "../../cuda_runtime/include").lexically_normal()};
    }
  return {};
}

std::vector<Path> cuda_folders() {
  const auto with_cccl = [](const Path& include) {
    std::vector<Path> folders = {include};
    // CUDA 13 has the headers of CUB, Thrust and libcu++ in a folder of their own.
    if (has_file(include / "cccl", "cuda/std/version")) folders.push_back(include / "cccl");
    return folders;
  };
  constexpr const char* header = "cuda_fp16.h";
  std::vector<Path> roots = roots_in({"CUDA_HOME", "CUDA_PATH"});
  roots.emplace_back("/usr/local/cuda");
  for (const Path& root : roots)
    if (has_file(root / "include", header)) return with_cccl(root / "include");
  // This order does not depend on which libraries are loaded, so that a request has one key in all processes.
  const auto& beside_nvrtc = base::once_per_process<const std::vector<Path>>(
      [] { return std::make_unique<const std::vector<Path>>(folders_beside_nvrtc()); });
  for (const Path& folder : beside_nvrtc)
    if (has_file(folder, header)) return with_cccl(folder);
  return {};
}

std::vector<Path> hip_folders() {
  std::vector<Path> roots = roots_in({"ROCM_PATH", "HIP_PATH"});
  roots.emplace_back("/opt/rocm");
  roots.emplace_back("/usr");
  for (const Path& root : roots)
    if (has_file(root / "include", "hip/hip_runtime.h")) return {root / "include"};
  return {};
}

/// Without links and ".."; the path itself if there is no such file or folder.
std::string canonical_path(const Path& path) {
  std::error_code error;
  const Path found = std::filesystem::canonical(path, error);
  return error ? path.string() : found.string();
}

/// Whether programs that have nothing to do with the toolkit install their headers there, too. `folder` is
/// canonical.
bool has_headers_of_others(const Path& folder) {
  for (const char* common : {"/usr/include", "/usr/local/include"})
    if (folder == canonical_path(common)) return true;
  return has_file(folder, "../conda-meta");
}

}  // namespace

std::vector<Path> toolkit_folders(Language language) {
  if (language == Language::cuda) return cuda_folders();
  if (language == Language::hip) return hip_folders();
  return {};
}

ToolkitFiles::ToolkitFiles(const std::vector<Path>& folders, std::size_t count) {
  if (count == 0) return;
  std::vector<std::string> canonical;
  for (const Path& folder : folders) canonical.push_back(canonical_path(folder));
  const auto toolkit = std::span(canonical).last(count);
  are_mixed_ = std::ranges::any_of(toolkit, has_headers_of_others);
  for (std::size_t i = 0; i < folders.size(); ++i) {
    const bool is_toolkit = std::ranges::find(toolkit, canonical[i]) != toolkit.end();
    for (const std::string& path : {folders[i].string(), canonical[i]})
      folders_.push_back({path.ends_with('/') ? path : path + '/', is_toolkit});
  }
  std::ranges::stable_sort(folders_, std::ranges::greater(),
                           [](const Folder& folder) { return folder.path.size(); });
}

bool ToolkitFiles::contains(const std::string& path) const {
  if (folders_.empty()) return false;
  const auto folder_of = [this](const std::string& place) {
    const auto deepest =
        std::ranges::find_if(folders_, [&](const Folder& folder) { return place.starts_with(folder.path); });
    return deepest != folders_.end() ? &*deepest : nullptr;
  };
  const Folder* folder = folder_of(path);
  // ".." may leave the folder, also through a link.
  if (path.find("/..", folder != nullptr ? folder->path.size() - 1 : 0) != std::string::npos)
    folder = folder_of(canonical_path(path));
  return folder != nullptr && folder->is_toolkit;
}

}  // namespace kiln::key
