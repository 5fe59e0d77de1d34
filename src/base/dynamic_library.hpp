#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <kiln/result.hpp>

namespace kiln::base {

/// A shared library opened at run time; closed on destruction.
class DynamicLibrary {
 public:
  /// The error names the library and the reason.
  static Result<DynamicLibrary> open(const std::string& name);
  /// The same, but the library is never unloaded: drivers run their own threads, which need their code until the
  /// process ends.
  static Result<DynamicLibrary> open_for_good(const std::string& name);
  /// The library if it is already loaded in this process; empty otherwise.
  static DynamicLibrary loaded(const std::string& name);

  /// The folders in which the program's dynamic loader searches for libraries, such as its run path. Not
  /// `LD_LIBRARY_PATH` of a set-uid program, which the loader ignores.
  static std::vector<std::filesystem::path> search_path();

  DynamicLibrary() = default;
  DynamicLibrary(DynamicLibrary&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  DynamicLibrary& operator=(DynamicLibrary&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~DynamicLibrary();

  explicit operator bool() const noexcept { return handle_ != nullptr; }
  /// The file of an open library; empty if it is unknown.
  std::filesystem::path path() const;
  /// The address of the function or variable `name`; null if the library has none.
  void* symbol(const char* name) const;
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }

 private:
  static Result<DynamicLibrary> open_with(const std::string& name, int flags);
  explicit DynamicLibrary(void* handle) noexcept : handle_(handle) {}

  void* handle_ = nullptr;
};

}  // namespace kiln::base
