#pragma once

#include <cstdint>
#include <memory>

#include <kiln/backend.hpp>
#include <kiln/opengl.hpp>

#include "backend/opengl/share_group.hpp"

namespace kiln::opengl {

/// How Kiln lays out what the driver gave out; part of the identity, so that no other layout is ever met.
inline constexpr std::uint32_t binary_layout = 1;

/// Compiles and links a compute program; a context of the group is current.
Result<Compiled> compile_program(const std::shared_ptr<ShareGroup>& group, const Request& request);

/// Loads a linked program from its binary; a context of the group is current.
Result<std::unique_ptr<kiln::Module>> load_program(const std::shared_ptr<ShareGroup>& group, const Binary& binary);

}  // namespace kiln::opengl
