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

/// A group of contexts that share their objects, and the pool of them that is lent to threads. A context is
/// current on at most one thread; objects made in one are seen in all.
class ShareGroup final : public std::enable_shared_from_this<ShareGroup>,
                         public backend::quirks::MesaProgramDeletion::Contexts {
  struct Private {};

 public:
  /// A group of Kiln's own on `display`.
  static Result<std::shared_ptr<ShareGroup>> create(EGLDisplay display, const Log& log);
  /// The group of the context that is current on this thread; see adopt_current().
  static Result<std::shared_ptr<ShareGroup>> adopt(const Log& log, bool share);

  ShareGroup(Private, EGLDisplay display, Log log) : display_(display), log_(std::move(log)) {}
  ~ShareGroup();

  /// Makes a context of the group current on this thread until the result is destroyed. Where one is current
  /// already, that one is used.
  Result<std::unique_ptr<Acquired>> acquire();
  /// The same for an application, which may launch programs of its own accord until the result is destroyed.
  Result<std::unique_ptr<Acquired>> show();
  /// A context for this thread to use over many calls: that which is current, if it is the group's.
  Result<std::unique_ptr<SlotContext>> keep();

  /// Deletes a program or a buffer; at a later acquire() where that cannot be done now.
  void delete_program(GLuint id) noexcept;
  void delete_buffer(GLuint id) noexcept;

  /// Whether any thread can be lent a context.
  bool pooled() const noexcept { return display_ != EGL_NO_DISPLAY; }
  EGLDisplay display() const noexcept { return display_; }
  /// The context current on this thread, as far as it can be one of this group.
  void* current() const noexcept override;
  /// Whether the context current on this thread is the caller's own, whose bindings are not Kiln's to change.
  bool in_callers_context() const noexcept;
  const Log& log() const noexcept { return log_; }
  /// Every launch in a context of the group is a Launch of this; null if the driver does not need it.
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
  /// The lent context that is current on this thread.
  std::shared_ptr<LentContext> lent_as(void* context);
  bool is_member(void* context) const;
  /// Deletes what is doomed, as far as that can be done from here.
  void delete_doomed();
  /// Deletes all objects of an adopted group, as far as that can be done from here.
  void delete_all();
  bool application_has_other(void* here) const override;
  bool is_idle(void* context) const override;
  void in_each_idle(const std::vector<void*>& contexts, const std::function<void(void*)>& work) override;
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

  std::unique_ptr<backend::quirks::MesaProgramDeletion> mesa_program_deletion_;

  mutable base::Mutex pool_mutex_;
  std::set<EGLContext> members_ KILN_GUARDED_BY(pool_mutex_);
  std::vector<EGLContext> idle_ KILN_GUARDED_BY(pool_mutex_);
  std::map<void*, std::weak_ptr<LentContext>> lent_ KILN_GUARDED_BY(pool_mutex_);
  // Those lent to applications.
  std::set<void*> shown_ KILN_GUARDED_BY(pool_mutex_);
  Doomed doomed_ KILN_GUARDED_BY(pool_mutex_);
};

}  // namespace kiln::opengl
