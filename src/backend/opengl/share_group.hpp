#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include <epoxy/egl.h>
#include <epoxy/gl.h>

#include <kiln/log.hpp>
#include <kiln/result.hpp>

#include "backend/quirks/mesa_program_deletion.hpp"
#include "base/mutex.hpp"

namespace kiln::opengl {

struct Acquired;
class ApiBinding;
class SlotContext;
class LentContext;

/// A group of contexts that share their objects, and a pool of these contexts for threads to borrow. A context is
/// current on at most one thread; objects made in one context are visible in all.
class ShareGroup final : public std::enable_shared_from_this<ShareGroup>,
                         public backend::quirks::MesaProgramDeletion::Contexts {
  struct Private {};

 public:
  /// Creates a group of new contexts on `display`.
  static Result<std::shared_ptr<ShareGroup>> create(EGLDisplay display, const Log& log);
  /// Adopts the group of the current context of this thread; see adopt_current().
  static Result<std::shared_ptr<ShareGroup>> adopt(const Log& log, bool share);

  ShareGroup(Private, EGLDisplay display, Log log) : display_(display), log_(std::move(log)) {}
  ~ShareGroup();

  /// Makes a context of the group current on this thread until the result is destroyed. If one is current already,
  /// uses that one.
  Result<std::unique_ptr<Acquired>> acquire();
  /// As acquire(), for an application that may launch programs itself until the result is destroyed.
  Result<std::unique_ptr<Acquired>> show();
  /// Borrows a context for many calls on this thread: the current one if it belongs to the group.
  Result<std::unique_ptr<SlotContext>> keep();

  /// Deletes a program or a buffer. If that is not possible now, a later acquire() deletes it.
  void delete_program(GLuint id) noexcept;
  void delete_buffer(GLuint id) noexcept;

  /// Whether every thread can borrow a context.
  bool pooled() const noexcept { return display_ != EGL_NO_DISPLAY; }
  EGLDisplay display() const noexcept { return display_; }
  /// The current context of this thread, of EGL or GLX as the group requires. It need not belong to the group.
  void* current() const noexcept override;
  /// Whether a context of the group is current on this thread.
  bool has_current() const {
    void* const present = current();
    return present != nullptr && is_member(present);
  }
  /// Whether the current context is the caller's own, whose bindings Kiln must restore.
  bool in_callers_context() const noexcept;
  const Log& log() const noexcept { return log_; }
  /// A MesaProgramDeletion::Launch must enclose every launch in a context of the group. Null if the driver does not
  /// need the work-around.
  backend::quirks::MesaProgramDeletion* mesa_program_deletion() const noexcept {
    return mesa_program_deletion_.get();
  }

 private:
  friend struct Acquired;
  friend class LentContext;

  struct Doomed {
    std::vector<GLuint> programs;
    std::vector<GLuint> buffers;
  };

  Result<EGLContext> make_context(EGLContext share);
  Result<EGLContext> take_idle();
  void give_back(EGLContext context);
  void take_back(EGLContext shown);
  Result<std::shared_ptr<LentContext>> borrow(std::shared_ptr<const ApiBinding> api);
  /// The loan of a context that is current on this thread.
  std::shared_ptr<LentContext> lent_as(void* context);
  bool is_member(void* context) const;
  /// Deletes the objects in `doomed_` that can be deleted in the current context.
  void delete_doomed();
  /// Deletes the remaining objects of an adopted group, if a context of the group can be used on this thread.
  void delete_all();
  bool application_has_other(void* here) const override;
  bool is_idle(void* context) const override;
  void in_each_idle(const std::vector<void*>& contexts, const std::function<void(void*)>& work) override;
  void watch_debug_output();

  // The display of new contexts; EGL_NO_DISPLAY if an adopted context is not shared.
  const EGLDisplay display_;
  const Log log_;
  // The caller's context in an adopted group, from EGL or GLX.
  void* adopted_ = nullptr;
  bool adopted_is_egl_ = false;
  EGLContext root_ = EGL_NO_CONTEXT;
  // The configuration of new contexts: EGL_NO_CONFIG_KHR, or that of the adopted context.
  EGLConfig config_ = nullptr;

  std::unique_ptr<backend::quirks::MesaProgramDeletion> mesa_program_deletion_;

  mutable base::Mutex pool_mutex_;
  std::set<EGLContext> members_ KILN_GUARDED_BY(pool_mutex_);
  std::vector<EGLContext> idle_ KILN_GUARDED_BY(pool_mutex_);
  std::map<void*, std::weak_ptr<LentContext>> lent_ KILN_GUARDED_BY(pool_mutex_);
  // Contexts in which the application may launch programs.
  std::set<void*> shown_ KILN_GUARDED_BY(pool_mutex_);
  Doomed doomed_ KILN_GUARDED_BY(pool_mutex_);
};

}  // namespace kiln::opengl
