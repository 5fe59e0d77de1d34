#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include <epoxy/egl.h>
#include <epoxy/gl.h>

#include <kiln/log.hpp>
#include <kiln/opengl.hpp>
#include <kiln/result.hpp>

#include "base/mutex.hpp"

namespace kiln::opengl {

/// A group of contexts that share their objects, and the pool of them that is lent to threads. A context is
/// current on at most one thread; objects made in one are seen in all.
class ShareGroup : public std::enable_shared_from_this<ShareGroup> {
  struct Private {};

 public:
  /// A group of Kiln's own on `display`.
  static Result<std::shared_ptr<ShareGroup>> create(EGLDisplay display, const Log& log);
  /// The group of the context that is current on this thread; see adopt_current().
  static Result<std::shared_ptr<ShareGroup>> adopt(const Log& log, bool share);

  ShareGroup(Private, EGLDisplay display, Log log) : display_(display), log_(std::move(log)) {}
  ~ShareGroup();

  /// Makes a context of the group current on this thread until the lease ends. Where one is current already,
  /// that one is used.
  Result<Current> acquire();

  /// Deletes a program or a buffer; at the next acquire() where no context can be had now.
  void delete_program(GLuint id) noexcept;
  void delete_buffer(GLuint id) noexcept;

  /// Whether any thread can be lent a context.
  bool pooled() const noexcept { return display_ != EGL_NO_DISPLAY; }
  /// Whether the context current on this thread is the caller's own, whose bindings are not Kiln's to change.
  bool in_callers_context() const noexcept;
  const Log& log() const noexcept { return log_; }

 private:
  friend class Current;
  friend struct Current::Lease;

  struct Doomed {
    std::vector<GLuint> programs;
    std::vector<GLuint> buffers;
  };

  Result<EGLContext> make_context(EGLContext share);
  Result<EGLContext> take_idle();
  void give_back(EGLContext context);
  bool is_member(void* context) const;
  /// The context current on this thread, as far as it can be one of this group.
  void* current() const noexcept;
  void delete_doomed();
  void watch_debug_output();

  // Where new contexts come from; EGL_NO_DISPLAY for a lone adopted context.
  const EGLDisplay display_;
  const Log log_;
  // The caller's context in an adopted group: EGL's, or another window system's.
  void* adopted_ = nullptr;
  bool adopted_is_egl_ = false;
  EGLContext root_ = EGL_NO_CONTEXT;
  // What new contexts are made with: EGL_NO_CONFIG_KHR, or the adopted context's own.
  EGLConfig config_ = nullptr;

  mutable base::Mutex pool_mutex_;
  std::set<EGLContext> members_ KILN_GUARDED_BY(pool_mutex_);
  std::vector<EGLContext> idle_ KILN_GUARDED_BY(pool_mutex_);
  Doomed doomed_ KILN_GUARDED_BY(pool_mutex_);
};

}  // namespace kiln::opengl
