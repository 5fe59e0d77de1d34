#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <kiln/request.hpp>
#include <kiln/result.hpp>

#include "backend/vulkan/shaderc_functions.hpp"
#include "base/dynamic_library.hpp"

namespace kiln::vulkan {

/// The compiler from GLSL to SPIR-V, opened at run time. Thread-safe.
class Shaderc {
 public:
  /// The error says which library is missing, and what provides it.
  static Result<std::shared_ptr<const Shaderc>> open();
  /// Opens the first of these libraries that loads and has the functions of shaderc.
  static Result<std::shared_ptr<const Shaderc>> open(std::span<const char* const> libraries);
  Shaderc(base::DynamicLibrary library, const ShadercFunctions& functions);
  ~Shaderc();
  Shaderc(const Shaderc&) = delete;
  Shaderc& operator=(const Shaderc&) = delete;

  /// Compiles to SPIR-V 1.3, optimised unless the request's options say otherwise (-O0, -Os, -O; -g keeps names and
  /// lines). The module declares every buffer and parameter that the source declares, used or not.
  Result<std::vector<std::uint32_t>> compile(const Request& request) const;

  /// The version of the compiler. The library from Kiln's build reports the release of shaderc; others report only
  /// the version of SPIR-V.
  const std::string& version() const noexcept { return version_; }

 private:
  struct Options;
  Result<std::vector<std::uint32_t>> compile(const Request& request, const std::string& text,
                                             const Options& options) const;

  const base::DynamicLibrary library_;
  const ShadercFunctions functions_;
  const shaderc_compiler_t compiler_;
  const std::string version_;
};

}  // namespace kiln::vulkan
