#pragma once

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

namespace kiln::backend::quirks {

/// Restores the environment variables that list OpenCL drivers and layers, after the Khronos loader has parsed
/// them. The loader overwrites each colon of a list with a NUL, in the environment itself. Without this class,
/// child processes such as kiln-helper would see only the first file of the list.
///
/// Applies to all versions of the loader since the variables were added (2019):
/// https://github.com/KhronosGroup/OpenCL-ICD-Loader/pull/77, loader_get_next_path().
class KeepOpenClVariables {
 public:
  KeepOpenClVariables() {
    for (Variable& variable : variables_) {
      variable.value = std::getenv(variable.name);
      if (variable.value != nullptr) variable.before = variable.value;
    }
  }
  ~KeepOpenClVariables() {
    for (const Variable& variable : variables_)
      if (variable.value != nullptr && std::strlen(variable.value) < variable.before.size() &&
          std::getenv(variable.name) == variable.value)
        std::memcpy(variable.value, variable.before.data(), variable.before.size());
  }
  KeepOpenClVariables(const KeepOpenClVariables&) = delete;
  KeepOpenClVariables& operator=(const KeepOpenClVariables&) = delete;

 private:
  struct Variable {
    const char* name;
    char* value = nullptr;
    std::string before = {};
  };
  std::array<Variable, 2> variables_ = {{{"OCL_ICD_FILENAMES"}, {"OPENCL_LAYERS"}}};
};

}  // namespace kiln::backend::quirks
