#pragma once

#include <string>
#include <vector>

#include <epoxy/egl.h>

#include <kiln/result.hpp>

namespace kiln::opengl {

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
