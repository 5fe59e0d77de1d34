#pragma once

#include <memory>

#include <kiln/backend.hpp>
#include <kiln/opengl.hpp>

#include "backend/opengl/share_group.hpp"

namespace kiln::opengl {

/// Compiles and links a compute program; a context of the group is current.
Result<Compiled> compile_program(const std::shared_ptr<ShareGroup>& group, const Request& request);

/// Loads a linked program from its binary; a context of the group is current.
Result<std::unique_ptr<kiln::Module>> load_program(const std::shared_ptr<ShareGroup>& group, const Binary& binary);

/// The text a driver gets: the source with the request's defines behind its #version.
std::string with_defines(const Request& request);

/// The sentence for a compiler's log, with the file and the line it complains of first.
std::string compile_message(const Request& request, const std::string& log);

}  // namespace kiln::opengl
