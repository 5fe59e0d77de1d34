#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kiln/backend.hpp>
#include <kiln/log.hpp>

namespace kiln::backend {

/// A program that was compiled for a GPU that need not be present. It cannot be launched.
class OfflineModule final : public Module {
 public:
  OfflineModule(Binary compiled, std::vector<std::string> entries);
  std::size_t bytes() const noexcept override { return binary.bytes.size(); }
  std::vector<std::string> entries() const override { return names_; }
  Module* entry(std::string_view name) noexcept override;

  const Binary binary;

 private:
  class Entry;

  const std::vector<std::string> names_;
  /// A module for each entry point, if there are several.
  std::vector<std::unique_ptr<Module>> entries_;
};

/// A backend that only compiles, for one of these targets:
/// - "sm_90", an NVIDIA GPU, or "compute_90", PTX for this and later NVIDIA GPUs, with NVRTC;
/// - "gfx906" or "gfx90a:xnack-", an AMD GPU, with hipcc;
/// - "vulkan", SPIR-V for every Vulkan device, with shaderc.
///
/// Its modules are OfflineModules. Equal requests give equal bytes. Fails with invalid_request for another target,
/// and with unsupported if the compiler is missing or does not know it; the error names the architectures that the
/// compiler knows. No NVIDIA device has an architecture with a suffix: for "sm_90a", open "sm_90" and give requests
/// the option -arch=sm_90a.
///
/// Programs for NVIDIA GPUs have the identity of a device of the architecture whose driver has NVRTC's major
/// version, so a cache of that device finds them. All others have identities of their own, which Backend::accepts()
/// of devices knows.
Result<std::shared_ptr<Backend>> open_offline(std::string_view target, const Log& log = {});

/// Whether a request is one for a target of open_offline(): in a language of its API, not compiled already (except
/// SPIR-V for "vulkan"), and without an option that selects another architecture, as -arch=sm_90a does for "sm_80".
/// Others need not be compiled for it.
bool suits(const Request& request, std::string_view target);

/// The NVIDIA architectures that NVRTC knows, as in "sm_90", the oldest first. Fails with unsupported without
/// NVRTC.
Result<std::vector<std::string>> cuda_architectures();

/// A compiler of open_offline().
struct FoundCompiler {
  /// "cuda", "hip" or "vulkan".
  std::string_view api;
  /// As in "NVRTC 13.0"; empty if it is missing.
  std::string version = {};
  /// Why it cannot be used, and what to install; empty if it can.
  std::string problem = {};
};

/// The compilers of all APIs, whether they are installed or not. Runs hipcc, which takes up to a second.
std::vector<FoundCompiler> find_compilers();

}  // namespace kiln::backend
