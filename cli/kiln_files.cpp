#include "kiln_files.hpp"

#include "base/file.hpp"
#include "store/directory.hpp"
#include "store/manifest.hpp"

namespace kiln::cli {
namespace {

constexpr std::string_view lock_name = ".lock";
constexpr std::string_view stats_name = "cache_stats.json";

}  // namespace

bool is_temporary_file(const std::string& name) {
  // People, too, like names that begin with ".tmp-"; Kiln's go on with hexadecimal numbers only.
  const std::size_t dash = name.find('-');
  return base::Folder::is_temporary(name) && dash != std::string::npos &&
         name.find_first_not_of("0123456789abcdef-", dash) == std::string::npos;
}

bool is_device_file(const std::string& name) {
  return store::key_of_file(name) || store::entry_of_meta(name) || name == store::manifest_name ||
         name == lock_name || is_temporary_file(name);
}

bool is_root_file(const std::string& name) {
  return name == stats_name || name == lock_name || is_temporary_file(name);
}

}  // namespace kiln::cli
