#include "backend/opencl/pocl.hpp"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>

#include "base/environment.hpp"
#include "base/sha256.hpp"

namespace kiln::opencl {
namespace {

/// Where PoCL keeps its files; nothing where it is not known.
std::optional<std::filesystem::path> cache_of_pocl() {
  if (const char* folder = base::environment("POCL_CACHE_DIR")) return folder;
  if (const char* folder = base::environment("XDG_CACHE_HOME"))
    return std::filesystem::path(folder) / "pocl/kcache";
  if (const char* home = base::environment("HOME")) return std::filesystem::path(home) / ".cache/pocl/kcache";
  return std::nullopt;
}

}  // namespace

bool is_whole(std::string_view image) {
  if (!image.starts_with("poclbin")) return true;
  // A file is its name and its contents, each behind its length.
  std::uint32_t length = 0;
  const std::size_t name = image.find("/program.");
  if (name == std::string_view::npos || name < sizeof length) return false;
  std::memcpy(&length, image.data() + name - sizeof length, sizeof length);
  const std::size_t left = image.size() - name;
  if (length > left || left - length < sizeof length) return false;
  const std::size_t contents = left - length - sizeof length;
  std::memcpy(&length, image.data() + name + length, sizeof length);
  return length > 0 && length <= contents;
}

PoclTurn::PoclTurn(std::string_view source, std::string_view options) {
  using namespace std::chrono_literals;
  const auto path = cache_of_pocl();
  if (!path) return;
  const auto folder = base::Folder::open(*path, true);
  if (!folder) return;
  auto file = folder->open_lock_file("kiln.lock");
  if (!file) return;
  file_ = std::move(*file);
  const Digest text = base::sha256(std::string(options) + '\n' + std::string(source));
  // As long as a compiler may take: who was stopped with it is not waited for for ever.
  lock_ = base::FileLock::acquire(file_, text.word(0), 1min);
}

}  // namespace kiln::opencl
