#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <epoxy/egl.h>
#include <epoxy/gl.h>

#include <kiln/result.hpp>

namespace kiln::opengl {

/// Clears the errors of the current context. Returns GL_CONTEXT_LOST or GL_OUT_OF_MEMORY if it occurred, otherwise
/// the first error; GL_NO_ERROR if there is none.
GLenum take_error();

/// Converts an OpenGL error other than GL_NO_ERROR. `doing` names the operation that failed, as in "allocating 4
/// bytes".
Error gl_error(GLenum error, std::string_view doing, std::string log = {});

/// Fails if take_error() returns an error.
Result<void> check_gl(std::string_view doing);

/// The error of every call once exit() has begun.
Error process_ending();

/// An EGL display on which contexts can be made without a window.
struct Display {
  EGLDisplay display = EGL_NO_DISPLAY;
  /// Whether it renders on the CPU.
  bool software = false;
  /// Why it cannot be used; empty if it can.
  std::string problem;
};

/// Fails if libEGL or an OpenGL library cannot be loaded. Check this before any GL or EGL call: libepoxy ends the
/// process if a library is missing.
Result<void> find_libraries();

/// The displays of this machine, initialised, GPUs before CPUs: one for each EGL device, and Mesa's surfaceless
/// display if none of these is usable.
Result<std::vector<Display>> list_displays();

/// The name of an EGL error, as in EGL_BAD_ALLOC.
std::string egl_error_name(EGLint error);

}  // namespace kiln::opengl
