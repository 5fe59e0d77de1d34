#include "backend/quirks/pocl_specialisation.hpp"

#include <algorithm>
#include <filesystem>

#include "backend/opencl/library.hpp"
#include "backend/quirks/pocl_kernel_cache.hpp"

namespace kiln::backend::quirks {
namespace {

/// The folder of a kernel has a folder for each group size, as in "64-1-1-goffs0-smallgrid"; this is that for any
/// size.
constexpr std::string_view any_size = "0-0-0";

bool has_code_of(const std::filesystem::path& kernel) {
  std::error_code error;
  for (std::filesystem::directory_iterator size(kernel, error), end; !error && size != end; size.increment(error))
    if (size->path().filename().string() != any_size) return true;
  return false;
}

}  // namespace

bool PoclSpecialisation::affects(std::string_view device_version, std::string_view driver_version) {
  return opencl::pocl_major_version(device_version, driver_version).has_value();
}

bool PoclSpecialisation::has_code(std::string_view binary, const std::vector<std::string>& kernels) {
  // An identifier of 8 bytes, the device, the version, the number of kernels, flags, the number of files, and then
  // the folder in which the cache keeps the program, as in "FG/AMFB…".
  constexpr std::size_t folder_at = 8 + 8 + 4 + 4 + 8 + 4;
  constexpr std::size_t folder_size = 40;
  if (!binary.starts_with("poclbin") || binary.size() < folder_at + folder_size) return false;
  const std::string_view name = binary.substr(folder_at, folder_size);
  if (!std::ranges::all_of(name, [](char c) { return (c >= 'A' && c <= 'P') || c == '/'; })) return false;
  const auto folder = folder_of_pocl() / name;
  return std::ranges::all_of(kernels, [&](const std::string& kernel) { return has_code_of(folder / kernel); });
}

}  // namespace kiln::backend::quirks
