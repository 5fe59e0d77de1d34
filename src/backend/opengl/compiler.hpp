#pragma once

#include <cstdint>
#include <memory>

#include <kiln/backend.hpp>
#include <kiln/device.hpp>

#include "backend/opengl/share_group.hpp"
#include "backend/vulkan/shaderc.hpp"

/// All functions require that a context of the group is current.
namespace kiln::opengl {

/// The version of Kiln's layout of binaries. It is part of the identity, so binaries of other layouts are never
/// loaded.
inline constexpr std::uint32_t binary_layout = 1;

/// SPIR-V must be within `limits`: drivers crash beyond them.
Result<Compiled> compile_program(const std::shared_ptr<ShareGroup>& group, const DeviceLimits& limits,
                                 const vulkan::SpirvValidator& validator, const Request& request);

Result<std::unique_ptr<kiln::Module>> load_program(const std::shared_ptr<ShareGroup>& group, const Binary& binary);

}  // namespace kiln::opengl
