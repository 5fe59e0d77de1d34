#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <spirv/unified1/spirv.hpp11>

#include <kiln/result.hpp>

#include "backend/glsl_arguments.hpp"

namespace kiln::vulkan {

/// The resources that a launch of a compute program must provide, as read from its SPIR-V.
struct ShaderInterface {
  /// Storage buffers 0 … buffers-1 of set 0.
  std::uint32_t buffers = 0;
  /// The size of the push-constant block.
  std::uint32_t parameter_bytes = 0;
  /// A lower bound of the memory a group shares: padding and lengths computed by the driver are not counted.
  std::uint64_t shared_bytes = 0;
  std::array<std::uint32_t, 3> group_size = {};

  friend bool operator==(const ShaderInterface&, const ShaderInterface&) = default;
};

/// The bytes as words; empty if the last word is incomplete.
std::vector<std::uint32_t> spirv_words(std::span<const std::byte> bytes);

/// A compute entry point and its interface.
struct ShaderEntry {
  std::string name;
  ShaderInterface interface;

  friend bool operator==(const ShaderEntry&, const ShaderEntry&) = default;
};

/// Entry points as bytes, and back; nullopt if the bytes are damaged. Version 0.2 of Kiln wrote the interface of
/// its only entry point, main.
std::vector<std::byte> to_bytes(const std::vector<ShaderEntry>& entries);
std::optional<std::vector<ShaderEntry>> entries_from(std::span<const std::byte> bytes);

/// The highest version of SPIR-V that a version of Vulkan takes, as in a module's header: 0x00010300 for 1.3.
std::uint32_t spirv_version_of(std::uint32_t vulkan_version) noexcept;

/// The resources that a module may declare. Vulkan launches bind storage buffers of set 0, and push constants.
enum class Resources { storage_buffers, any };

/// Reads a module that has only compute entry points, at least one. Safe on arbitrary words. Fails with load_failed
/// if it is malformed or of a later version, and with unsupported if it declares other resources, has an entry
/// point whose name cannot be stored, or uses decoration groups, which hide a part of the interface. All entry
/// points have the buffers, parameters and shared memory of the whole module.
///
/// Only the instructions that determine the interface are checked. Functions are not: the driver gets only modules
/// that a compiler made or that passed Shaderc::validate(), and whose checksum shows that they are unchanged since.
Result<std::vector<ShaderEntry>> read_spirv(std::span<const std::uint32_t> words,
                                            std::uint32_t max_version = 0x00010300,
                                            Resources resources = Resources::storage_buffers);

/// The variables of a module that a launch of OpenGL must provide.
struct SpirvInputs {
  /// Without names and sizes; in the order of the module. Several may have one binding.
  std::vector<backend::GlslResource> resources = {};
  /// The highest location of a plain uniform.
  std::optional<std::uint32_t> last_location = {};
};

/// Reads these variables. Fails as read_spirv() does, for version 1.0. A variable without a binding has 0.
Result<SpirvInputs> read_inputs(std::span<const std::uint32_t> words);

/// Fails with unsupported if a module declares a capability that is not in `enabled`. The error has the name of the
/// program and of the capability. A malformed module passes: see read_spirv().
Result<void> check_capabilities(const std::string& program, std::span<const std::uint32_t> words,
                                std::span<const spv::Capability> enabled);

}  // namespace kiln::vulkan
