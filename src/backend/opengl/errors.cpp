#include "backend/opengl/errors.hpp"

#include <fmt/format.h>

namespace kiln::opengl {

GLenum take_error() {
  GLenum worst = GL_NO_ERROR;
  for (GLenum error = glGetError(); error != GL_NO_ERROR; error = glGetError()) {
    // A lost context may say so without end.
    if (error == GL_CONTEXT_LOST) return error;
    if (worst == GL_NO_ERROR || error == GL_OUT_OF_MEMORY) worst = error;
  }
  return worst;
}

Error gl_error(GLenum error, std::string_view doing, std::string log) {
  switch (error) {
    case GL_OUT_OF_MEMORY:
      return Error(ErrorCode::out_of_memory, fmt::format("the device ran out of memory {}", doing), std::move(log));
    case GL_CONTEXT_LOST:
      return Error(ErrorCode::device_failed, fmt::format("the device was lost {}; open it anew", doing),
                   std::move(log));
    default:
      return Error(ErrorCode::device_failed, fmt::format("OpenGL error {:#x} {}", error, doing), std::move(log));
  }
}

Result<void> check_gl(std::string_view doing) {
  const GLenum error = take_error();
  if (error == GL_NO_ERROR) return {};
  return gl_error(error, doing);
}

Error process_ending() { return Error(ErrorCode::device_failed, "the process is ending, and its drivers with it"); }

}  // namespace kiln::opengl
