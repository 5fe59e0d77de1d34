#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <epoxy/egl.h>
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

/// A place where OpenGL contexts can be made without a window.
struct Display {
  EGLDisplay display = EGL_NO_DISPLAY;
  /// Whether it renders on the CPU.
  bool software = false;
  /// Why it cannot be used; empty where it can.
  std::string problem;
};

/// Whether libEGL and an OpenGL library can be loaded; libepoxy ends the process where they cannot.
Result<void> find_libraries();

/// The displays of this machine, initialised, GPUs before CPUs: one for each EGL device, else Mesa's
/// surfaceless one.
Result<std::vector<Display>> list_displays();

/// The name of an EGL error, such as EGL_BAD_ALLOC.
std::string egl_error_name(EGLint error);

}  // namespace kiln::opengl
