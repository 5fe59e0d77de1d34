#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace kiln::base {

/// Where a file that is installed with Kiln is, as configured by CMake.
struct InstalledPlace {
  /// The folder, relative to those of Kiln's shared libraries, of its programs and of its helper.
  const char* from_libraries;
  const char* from_programs;
  const char* from_helper;
  /// The folder in the prefix that Kiln was configured with.
  const char* folder;
};

/// The folders to search for a file of Kiln's own, in order: that of the file that holds Kiln's code (the program
/// or a shared library), the place relative to it, and the configured folder. A set-uid program, or one with other
/// additional rights, gets only the last.
///
/// Takes no lock of the dynamic loader, so it does not block while another thread is inside dlopen().
std::vector<std::filesystem::path> folders_of(const InstalledPlace& place);

/// The path of a shared library that is built with Kiln and opened when it is needed: `override_variable` of the
/// environment if it is set, else the first file in the folders above or in the dynamic loader's search path that
/// can be trusted. Nothing if there is none.
///
/// A library is code. A file is trusted if it and its folder belong to this user, to root, or to the owner of the
/// file that holds Kiln's code, and others cannot write to them. Folders and files of this user may be writable by
/// the user's primary group, as with a umask of 002; a program with more rights than its caller does not accept
/// that.
std::optional<std::filesystem::path> find_own_library(const std::string& file_name, const char* override_variable);

}  // namespace kiln::base
