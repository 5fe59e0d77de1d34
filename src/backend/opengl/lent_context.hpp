#pragma once

#include <memory>
#include <utility>

#include <epoxy/egl.h>

#include "backend/opengl/share_group.hpp"
#include "base/process.hpp"

namespace kiln::opengl {

/// Binds OpenGL as the API of this thread, and restores the previous API on destruction. EGL keeps one per thread.
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

/// Makes a context current on this thread, and restores the previous context on destruction.
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
  /// Cancels the restoration.
  void forget() noexcept { made_ = false; }
  /// Restores the previous context, or none. Returns whether the context is no longer current.
  [[nodiscard]] bool back() {
    if (!std::exchange(made_, false)) return true;
    if (context_before_ != EGL_NO_CONTEXT &&
        eglMakeCurrent(display_before_, draw_before_, read_before_, context_before_) == EGL_TRUE)
      return true;
    // The previous context may have been destroyed or have lost its surface meanwhile.
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

/// A context lent to a thread and current there. All borrowers on that thread share this object and may end in any
/// order. The destructor restores the previous context and returns this one to the pool.
class LentContext {
 public:
  LentContext(std::shared_ptr<ShareGroup> group, std::shared_ptr<const ApiBinding> api, EGLDisplay display,
              EGLContext context);
  ~LentContext();
  LentContext(const LentContext&) = delete;
  LentContext& operator=(const LentContext&) = delete;

  /// Whether this object has made the context current.
  bool made() const noexcept { return current_.made(); }
  EGLContext context() const noexcept { return context_; }
  /// Restores the previous context early, if there was one.
  void step_aside();

 private:
  // Declared first, so that it is restored last.
  std::shared_ptr<const ApiBinding> api_;
  const std::shared_ptr<ShareGroup> group_;
  const EGLContext context_;
  ScopedCurrent current_;
  // Whether the context could not be released from this thread; then no other thread can use it.
  bool stuck_ = false;
};

/// Keeps a context of the group current on this thread.
struct Acquired {
  explicit Acquired(std::shared_ptr<ShareGroup> lender) : group(std::move(lender)) {}
  ~Acquired();
  Acquired(const Acquired&) = delete;
  Acquired& operator=(const Acquired&) = delete;

  const std::shared_ptr<ShareGroup> group;
  // One of these is set: `api` if the caller's own context is current, `lent` otherwise.
  std::shared_ptr<const ApiBinding> api;
  std::shared_ptr<LentContext> lent;
  // Whether this object has allowed the application to launch programs in the context; see ShareGroup::show().
  bool shown = false;
};

/// A context that one thread uses over many calls and may share with other borrowers on that thread. It stays
/// current between calls, unless another context was current when it was borrowed: then each call switches to it
/// and back.
class SlotContext {
 public:
  SlotContext(std::shared_ptr<ShareGroup> group, std::shared_ptr<LentContext> lent, void* context) noexcept
      : group_(std::move(group)), lent_context_(std::move(lent)), context_(context) {}

  /// Keeps the context current.
  struct Entered {
    Entered(EGLDisplay display, EGLContext context) : there(display, context) {}
    const ApiBinding api;
    ScopedCurrent there;
  };
  /// Makes the context current for one call; null if it is current already. Clears the errors of earlier calls.
  Result<std::unique_ptr<Entered>> enter() const;

 private:
  const std::shared_ptr<ShareGroup> group_;
  // Null if `context_` is the caller's own.
  const std::shared_ptr<LentContext> lent_context_;
  void* const context_;
};

}  // namespace kiln::opengl
