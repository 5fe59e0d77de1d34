#pragma once

#include <utility>

#include <epoxy/egl.h>

#include "base/process_end.hpp"

namespace kiln::opengl {

/// Binds OpenGL as this thread's API, which EGL keeps for each thread, and then what was bound before.
class ApiBinding {
 public:
  ApiBinding() : before_(eglQueryAPI()) { eglBindAPI(EGL_OPENGL_API); }
  ~ApiBinding() {
    if (!base::process_ends()) eglBindAPI(before_);
  }
  ApiBinding(const ApiBinding&) = delete;
  ApiBinding& operator=(const ApiBinding&) = delete;

 private:
  EGLenum before_;
};

/// Makes a context current on this thread, and then what was current before.
class ScopedCurrent {
 public:
  ScopedCurrent(EGLDisplay display, EGLContext context)
      : display_(display),
        display_before_(eglGetCurrentDisplay()),
        draw_before_(eglGetCurrentSurface(EGL_DRAW)),
        read_before_(eglGetCurrentSurface(EGL_READ)),
        context_before_(eglGetCurrentContext()),
        made_(eglMakeCurrent(display, EGL_NO_SURFACE, EGL_NO_SURFACE, context) == EGL_TRUE) {}
  ~ScopedCurrent() { static_cast<void>(back()); }
  ScopedCurrent(const ScopedCurrent&) = delete;
  ScopedCurrent& operator=(const ScopedCurrent&) = delete;

  bool made() const noexcept { return made_; }
  /// Whether another context was current before.
  bool displaced() const noexcept { return context_before_ != EGL_NO_CONTEXT; }
  /// Leaves what is current to others.
  void forget() noexcept { made_ = false; }
  /// Whether the context is current on no thread any more.
  [[nodiscard]] bool back() {
    if (!std::exchange(made_, false)) return true;
    if (context_before_ != EGL_NO_CONTEXT &&
        eglMakeCurrent(display_before_, draw_before_, read_before_, context_before_) == EGL_TRUE)
      return true;
    // What was current may be gone, or have lost its surface meanwhile.
    return eglMakeCurrent(display_, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT) == EGL_TRUE;
  }

 private:
  EGLDisplay display_;
  EGLDisplay display_before_;
  EGLSurface draw_before_;
  EGLSurface read_before_;
  EGLContext context_before_;
  bool made_;
};

}  // namespace kiln::opengl
