#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include <kiln/identity.hpp>

#include "base/file_system.hpp"

namespace kiln::store {

/// How long earlier versions of programs took to compile, as far as entries of these names are stored for the
/// devices of one API: for this identity, else for others. Takes time in proportion to the stored entries.
std::map<std::string, std::chrono::nanoseconds> compile_times(const std::filesystem::path& root,
                                                              const Identity& identity,
                                                              const std::set<std::string>& names,
                                                              const base::FileSystem& system);

}  // namespace kiln::store
