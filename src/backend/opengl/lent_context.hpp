#pragma once

#include <memory>
#include <utility>

#include <epoxy/egl.h>

#include "backend/opengl/share_group.hpp"
#include "base/process.hpp"

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

/// A context lent to a thread, on which it is current. All leases of that thread share it, so that they may end in
/// any order; with the last, things are put back as they were.
class LentContext {
 public:
  LentContext(std::shared_ptr<ShareGroup> group, std::shared_ptr<const ApiBinding> api, EGLDisplay display,
              EGLContext context);
  ~LentContext();
  LentContext(const LentContext&) = delete;
  LentContext& operator=(const LentContext&) = delete;

  /// Whether the context is current by this.
  bool made() const noexcept { return current_.made(); }
  EGLContext context() const noexcept { return context_; }
  /// Puts things back as they were already, where another context was current before.
  void step_aside();

 private:
  // First, so that it is put back last.
  std::shared_ptr<const ApiBinding> api_;
  const std::shared_ptr<ShareGroup> group_;
  const EGLContext context_;
  ScopedCurrent current_;
  // A context that stays current here can be lent to no other thread.
  bool stuck_ = false;
};

/// A context of the group that is current on this thread until this ends.
struct Acquired {
  explicit Acquired(std::shared_ptr<ShareGroup> lender) : group(std::move(lender)) {}
  ~Acquired();
  Acquired(const Acquired&) = delete;
  Acquired& operator=(const Acquired&) = delete;

  const std::shared_ptr<ShareGroup> group;
  // One of these: nothing is on lent where the caller's own context is current.
  std::shared_ptr<const ApiBinding> api;
  std::shared_ptr<LentContext> lent;
  // Whether it was for this one that the application may launch programs in it.
  bool shown = false;
};

/// A context that one thread uses over many calls, and others share with it there. Between the calls it stays
/// current where no other was before; a context of the application's own is left to it.
class SlotContext {
 public:
  SlotContext(std::shared_ptr<ShareGroup> group, std::shared_ptr<LentContext> lent, void* context) noexcept
      : group_(std::move(group)), lent_context_(std::move(lent)), context_(context) {}

  /// Keeps the context current until it ends.
  struct Entered {
    Entered(EGLDisplay display, EGLContext context) : there(display, context) {}
    const ApiBinding api;
    ScopedCurrent there;
  };
  /// Makes the context current for one call; null where it is. Errors of earlier calls are forgotten.
  Result<std::unique_ptr<Entered>> enter() const;

 private:
  const std::shared_ptr<ShareGroup> group_;
  // Nothing for the caller's own context.
  const std::shared_ptr<LentContext> lent_context_;
  void* const context_;
};

}  // namespace kiln::opengl
