#include "backend/quirks/pocl_kernel_cache.hpp"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>

#include "base/process.hpp"
#include "base/sha256.hpp"

namespace kiln::backend::quirks {

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

bool PoclKernelCache::affects(std::string_view device_version, std::string_view driver_version) {
  const auto major = opencl::pocl_major_version(device_version, driver_version);
  return major && *major < 6;
}

std::optional<PoclKernelCache> PoclKernelCache::of(const opencl::Library& cl, cl_device_id device, const Log& log) {
  if (!affects(cl.text(device, CL_DEVICE_VERSION), cl.text(device, CL_DRIVER_VERSION))) return std::nullopt;
  // PoCL creates the folder before it lists devices.
  auto folder = base::Folder::open(folder_of_pocl(), false);
  if (folder) return PoclKernelCache(std::move(*folder));
  log.debug("several processes may compile the same source with PoCL at once: " + folder.error().message());
  return PoclKernelCache(std::nullopt);
}

bool PoclKernelCache::has_program(std::string_view binary) {
  if (!binary.starts_with("poclbin")) return true;
  // A file is stored as its name and its contents, each preceded by its length.
  std::uint32_t length = 0;
  const std::size_t name = binary.find("/program.");
  if (name == std::string_view::npos || name < sizeof length) return false;
  std::memcpy(&length, binary.data() + name - sizeof length, sizeof length);
  const std::size_t left = binary.size() - name;
  if (length > left || left - length < sizeof length) return false;
  const std::size_t contents = left - length - sizeof length;
  std::memcpy(&length, binary.data() + name + length, sizeof length);
  return length > 0 && length <= contents;
}

PoclKernelCache::CompileLock PoclKernelCache::lock(std::string_view source, std::string_view options,
                                                   std::chrono::milliseconds timeout) const {
  CompileLock held;
  if (!folder_) return held;
  auto file = folder_->open_lock_file("kiln.lock");
  if (!file) return held;
  held.file_ = std::move(*file);
  const Digest text = base::sha256(std::string(options) + '\n' + std::string(source));
  held.lock_ = base::FileLock::acquire(held.file_, text.word(0), timeout);
  return held;
}

}  // namespace kiln::backend::quirks
