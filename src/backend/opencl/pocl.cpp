#include "backend/opencl/pocl.hpp"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>

#include "base/environment.hpp"
#include "base/sha256.hpp"

namespace kiln::opencl {
namespace {

/// Where PoCL keeps its files, as it looks for the place itself.
std::filesystem::path folder_of_pocl() {
  const auto variable = [](const char* name) {
    const char* value = base::environment(name);
    return std::filesystem::path(value == nullptr ? "" : value);
  };
  if (const auto folder = variable("POCL_CACHE_DIR"); !folder.empty()) return folder;
  if (const auto caches = variable("XDG_CACHE_HOME"); !caches.empty()) return caches / "pocl/kcache";
  if (const auto home = variable("HOME"); !home.empty()) return home / ".cache/pocl/kcache";
  return "/tmp/pocl/kcache";
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

bool is_pocl(const Library& cl, cl_device_id device) {
  // As in "OpenCL 3.0 pocl HSTR: pthread-x86_64-pc-linux-gnu-skylake-avx512"; later ones write PoCL.
  const std::string version = cl.text(device, CL_DEVICE_VERSION);
  return version.find("pocl HSTR") != std::string::npos || version.find("PoCL HSTR") != std::string::npos;
}

std::optional<PoclTurns> PoclTurns::open(const Log& log) {
  // PoCL makes it before it has a device to tell of.
  auto folder = base::Folder::open(folder_of_pocl(), false);
  if (folder) return PoclTurns(std::move(*folder));
  log.debug("PoCL may compile the same for several processes at once: " + folder.error().message());
  return std::nullopt;
}

PoclTurns::Turn PoclTurns::take(std::string_view source, std::string_view options,
                                std::chrono::milliseconds timeout) const {
  Turn turn;
  auto file = folder_.open_lock_file("kiln.lock");
  if (!file) return turn;
  turn.file_ = std::move(*file);
  const Digest text = base::sha256(std::string(options) + '\n' + std::string(source));
  turn.lock_ = base::FileLock::acquire(turn.file_, text.word(0), timeout);
  return turn;
}

}  // namespace kiln::opencl
