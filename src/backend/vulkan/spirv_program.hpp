#pragma once

#include <cstdint>
#include <string>

#include <kiln/backend.hpp>
#include <kiln/identity.hpp>

#include "backend/vulkan/shaderc.hpp"

namespace kiln::vulkan {

/// The SPIR-V of a request in GLSL, which is compiled, or in SPIR-V, which is read and validated for devices of
/// this version of Vulkan. Has only the entry points that the request names, if it names any. Not checked: whether
/// a device has the capabilities, and its limits.
Result<ShaderModule> shader_module(const Shaderc& shaderc, const Request& request, std::uint32_t vulkan_version);

/// The format of binaries for devices that are not known yet, sealed as in seal_sections(): the SPIR-V, its entry
/// points, the program's name.
constexpr std::uint32_t portable_format = 4;

/// The identity of binaries that compile_portable() makes. `compiler` is the version of the compiler.
Identity portable_identity(const std::string& compiler);
/// Whether binaries with this identity are portable.
bool is_portable(const Identity& target);

/// Compiles a request for devices that are not known yet. Needs no driver.
Result<Binary> compile_portable(const Shaderc& shaderc, const Request& request);

/// A program for devices that are not known yet.
struct PortableProgram {
  std::string name;
  ShaderModule module;
};

/// The program in a binary of compile_portable(). Fails with load_failed if it is damaged or of another format.
Result<PortableProgram> portable_program(const Binary& binary);

}  // namespace kiln::vulkan
