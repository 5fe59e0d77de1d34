#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <kiln/request.hpp>
#include <kiln/result.hpp>

#include "backend/vulkan/shaderc_functions.hpp"
#include "backend/vulkan/spirv.hpp"
#include "base/dynamic_library.hpp"
#include "base/mutex.hpp"

namespace kiln::vulkan {

/// A module in SPIR-V, and its entry points.
struct ShaderModule {
  std::vector<std::uint32_t> words;
  std::vector<ShaderEntry> entries;
};

/// The compiler from GLSL to SPIR-V, opened at run time. Thread-safe.
class Shaderc {
 public:
  /// Finds the library that was built with Kiln: `KILN_SHADERC`, beside Kiln's code, in the folder of Kiln's
  /// libraries, or in the search path of the dynamic loader. It is loaded with the first compile. If it is not
  /// there, loads shaderc from the system. The error says which library is missing, and what provides it.
  static Result<std::shared_ptr<const Shaderc>> find();
  /// Loads the first of these libraries that has the functions of shaderc.
  static Result<std::shared_ptr<const Shaderc>> open(std::span<const char* const> libraries);
  /// A library that is loaded with the first compile, and must then report this version.
  Shaderc(std::string library, std::string version);

  /// Compiles to SPIR-V 1.3, optimised unless the request's options say otherwise (-O0, -Os, -O; -g keeps names and
  /// lines). The interface has every resource, parameter and constant that the source declares, used or not, with
  /// the names of the source. Fails with invalid_request if a launch cannot give one of them.
  Result<ShaderModule> compile(const Request& request) const;

  /// Checks SPIR-V that another compiler made, because drivers crash on invalid modules. The error names the
  /// program. Fails with compile_failed if the module is invalid, and with unsupported if the library does not load
  /// or cannot check modules: only the one that is built with Kiln can.
  Result<void> validate(const std::string& name, std::span<const std::uint32_t> words,
                        SpirvEnvironment environment) const;

  /// The version of the compiler. The library that was built with Kiln has the releases of shaderc, SPIRV-Tools and
  /// glslang; others report only the version of SPIR-V.
  const std::string& version() const noexcept { return version_; }
  /// Whether the library has been loaded.
  bool is_loaded() const KILN_EXCLUDES(mutex_);

 private:
  struct Options;
  /// A loaded library with its compiler.
  class Loaded;

  explicit Shaderc(std::shared_ptr<const Loaded> loaded);
  Result<std::shared_ptr<const Loaded>> load() const KILN_EXCLUDES(mutex_);
  static Result<std::vector<std::uint32_t>> compile(const Loaded& loaded, const Request& request,
                                                    const std::string& text, const Options& options);

  /// Empty if it was loaded at once.
  const std::string library_;
  const std::string version_;
  mutable base::Mutex mutex_;
  mutable std::shared_ptr<const Loaded> loaded_ KILN_GUARDED_BY(mutex_);
};

/// Checks SPIR-V for devices that do not compile with shaderc. Finds the library at the first check, and keeps it.
/// Thread-safe.
class SpirvValidator {
 public:
  /// As Shaderc::validate(). Fails with unsupported if there is no library.
  Result<void> validate(const std::string& name, std::span<const std::uint32_t> words,
                        SpirvEnvironment environment) const KILN_EXCLUDES(mutex_);

 private:
  Result<std::shared_ptr<const Shaderc>> shaderc() const KILN_EXCLUDES(mutex_);

  mutable base::Mutex mutex_;
  mutable std::shared_ptr<const Shaderc> shaderc_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::vulkan
