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

/// A backend that only compiles: for an NVIDIA GPU, as in "sm_90", with NVRTC, or for an AMD GPU, as in "gfx906",
/// with hipcc. Its modules are OfflineModules. Fails with invalid_request for another architecture, and with
/// unsupported if the compiler is missing or does not know it. No NVIDIA device has an architecture with a suffix:
/// for "sm_90a", open "sm_90" and give requests the option -arch=sm_90a.
///
/// Programs for NVIDIA GPUs have the identity of a device of the architecture whose driver has NVRTC's major
/// version, so a cache of that device finds them. Programs for AMD GPUs have an identity of their own, because
/// devices compile with hipRTC.
Result<std::shared_ptr<Backend>> open_offline(std::string_view architecture, const Log& log = {});

}  // namespace kiln::backend
