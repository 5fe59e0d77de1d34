#pragma once

#include <string>
#include <string_view>

#include <epoxy/gl.h>

#include <kiln/result.hpp>

namespace kiln::opengl {

/// What went wrong in the context that is current since this was last asked: that it was lost or out of memory
/// before all else, else the first error; GL_NO_ERROR where nothing did.
GLenum take_error();

/// One of OpenGL's errors, not GL_NO_ERROR, as Kiln's; `doing` is what was under way, as in "allocating 4 bytes".
Error gl_error(GLenum error, std::string_view doing, std::string log = {});

/// The same for what take_error() says.
Result<void> check_gl(std::string_view doing);

/// What every call answers when the process ends, and the driver with it.
Error process_ending();

}  // namespace kiln::opengl
